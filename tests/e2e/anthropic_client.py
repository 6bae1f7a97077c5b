#!/usr/bin/env python3
"""Tool-call conversations with Anthropic's official client, as Claude Code holds them.

usage: anthropic_client.py URL
Two conversations of the bundled replay, one of them with thinking: the model calls a tool, is given the recorded result
and answers; what it said goes back as the client holds it. Then each kind of error, typed as the client types it.
Exit 1 with one line if anything is not as expected.
"""
import json
import pathlib
import sys

import anthropic

TRACE = pathlib.Path(__file__).resolve().parents[2] / "models/flash-next-mini/replay/agentic-200.jsonl"


def expect(what, expected, found):
    if expected != found:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def tools_of(record):
    return [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
            for f in (tool["function"] for tool in record["tools"])]


def total_input(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def converse(client, model, record, turns):
    """The first turns of a recorded conversation, streamed; the last one also at once. Returns tokens read from the cache."""
    thinks = record["chat_template_kwargs"]["enable_thinking"]
    request = {
        "model": model,
        "max_tokens": 32000,
        "extra_body": {"temperature": 0},
        "tools": tools_of(record),
        "thinking": {"type": "enabled", "budget_tokens": 1024} if thinks else {"type": "disabled"},
        "system": [{"type": "text", "text": record["messages"][0]["content"], "cache_control": {"type": "ephemeral"}}],
    }
    messages, read = [], 0
    expected = {turn["index"]: turn for turn in record["expected"][:turns]}
    for index, message in enumerate(record["messages"][1:], 1):
        if message["role"] == "user":
            messages.append({"role": "user", "content": message["content"]})
        elif message["role"] == "tool":
            call = next(block for block in messages[-1]["content"] if block.type == "tool_use")
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": message["content"]}]}]})
        elif index not in expected:
            break
        else:
            turn = expected[index]
            count = client.messages.count_tokens(messages=messages, **{
                name: request[name] for name in ("model", "tools", "system", "thinking")})
            text = ""
            with client.messages.stream(messages=messages, **request) as stream:
                for piece in stream.text_stream:
                    text += piece
                answer = stream.get_final_message()
            blocks = {kind: [b for b in answer.content if b.type == kind] for kind in ("thinking", "text", "tool_use")}
            expect("calls", [(c["name"], c["arguments"]) for c in turn["tool_calls"]],
                   [(b.name, b.input) for b in blocks["tool_use"]])
            expect("text", turn["content"], text)
            expect("text of the final message", text, "".join(b.text for b in blocks["text"]))
            expect("thought", turn.get("reasoning_content", ""), "".join(b.thinking for b in blocks["thinking"]))
            expect("signatures", True, all(b.signature for b in blocks["thinking"]))
            expect("stop_reason", "tool_use" if turn["tool_calls"] else "end_turn", answer.stop_reason)
            expect("count_tokens", total_input(answer.usage), count.input_tokens)
            expect("the first turn creates", index == 2, answer.usage.cache_creation_input_tokens > 0)
            expect(f"turn at {index} is warm", index > 2, answer.usage.cache_read_input_tokens > 0)
            read = answer.usage.cache_read_input_tokens
            whole = client.messages.create(messages=messages, **request)
            plain = [block.model_dump(exclude={"id"}, exclude_none=True) for block in whole.content]
            expect("the same turn at once", plain,
                   [block.model_dump(exclude={"id", "parsed_output"}, exclude_none=True) for block in answer.content])
            messages.append({"role": "assistant", "content": answer.content})
    return read


def expect_error(kind, error_type, call):
    try:
        call()
    except kind as error:
        expect("type of the error", error_type, error.body["error"]["type"])
        expect("the error has a request id", True, bool(error.request_id))
        return str(error)
    sys.exit(f"expected {kind.__name__}, found an answer")


def main():
    client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    expect("the model by its name", model, client.models.retrieve(model).id)
    records = {record["id"]: record for record in map(json.loads, TRACE.open())}
    plain = next(iter(records.values()))
    thinking = records["agentic-1079"]  # All right, where the model errs in others (as its reference does).
    read = [converse(client, model, plain, 3), converse(client, model, thinking, 3)]

    def ask(**more):
        return client.messages.create(**{"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]} | more)

    stopped = ask(max_tokens=1)
    expect("stop_reason at a limit", "max_tokens", stopped.stop_reason)
    expect("an empty conversation", True, "at least one message" in expect_error(
        anthropic.BadRequestError, "invalid_request_error", lambda: ask(messages=[])))
    expect("a long prompt", True, "prompt is too long: " in expect_error(
        anthropic.BadRequestError, "invalid_request_error",
        lambda: ask(messages=[{"role": "user", "content": "a " * 40_000}])))
    expect_error(anthropic.NotFoundError, "not_found_error", lambda: client.models.retrieve("other"))
    expect_error(anthropic.NotFoundError, "not_found_error", lambda: client.messages.batches.retrieve("batch_1"))
    print("ok", *read)


main()
