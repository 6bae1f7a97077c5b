#!/usr/bin/env python3
"""The Responses API with the official client: a tool-call conversation in each of the ways in which clients continue one.

usage: responses_client.py URL
The conversation is the first of the bundled replay: the model calls a tool, is given the recorded result, and answers.
Exit 1 with one line if anything is not as expected.
"""
import json
import pathlib
import sys

from openai import BadRequestError, NotFoundError, OpenAI

TRACE = pathlib.Path(__file__).resolve().parents[2] / "models/flash-next-mini/replay/agentic-200.jsonl"
QUIET = {"effort": "none"}


def expect(what, expected, found):
    if expected != found:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def items_of(messages):
    """Messages of the recorded chat, as input items."""
    items = []
    for message in messages:
        if message["role"] == "tool":
            call_id = items[-1]["call_id"]
            items.append({"type": "function_call_output", "call_id": call_id, "output": message["content"]})
            continue
        if message["content"]:
            items.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls", []):
            items.append({"type": "function_call", "call_id": call["id"], "name": call["function"]["name"],
                          "arguments": call["function"]["arguments"]})
    return items


def check_turn(turn, response):
    """What the model should have said, as recorded."""
    calls = [item for item in response.output if item.type == "function_call"]
    expect("calls", [(c["name"], c["arguments"]) for c in turn["tool_calls"]],
           [(c.name, json.loads(c.arguments)) for c in calls])
    expect("text", turn["content"], response.output_text)
    expect("status", "completed", response.status)
    expect("usage adds up", response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
    return calls


def stream(client, **asked):
    """A streamed turn: the final response, and how often each kind of event came."""
    kinds = {}
    with client.responses.stream(**asked) as events:
        for number, event in enumerate(events):
            expect("sequence_number", number, event.sequence_number)
            kinds[event.type] = kinds.get(event.type, 0) + 1
        return events.get_final_response(), kinds


def tool_conversation(client, model, record):
    tools = [{"type": "function", **tool["function"]} for tool in record["tools"]]
    asked = {"model": model, "tools": tools, "temperature": 0, "max_output_tokens": 256, "reasoning": QUIET}
    turns, messages = record["expected"], record["messages"]

    first, kinds = stream(client, input=items_of(messages[:turns[0]["index"]]), **asked)
    calls = check_turn(turns[0], first)
    expect("one completed", 1, kinds["response.completed"])
    expect("arguments streamed", True, kinds["response.function_call_arguments.delta"] >= 1)

    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": messages[turns[0]["index"] + 1]["content"]}
    by_id = client.responses.create(input=[result], previous_response_id=first.id, **asked)
    check_turn(turns[1], by_id)
    expect("the turn is warm", True, by_id.usage.input_tokens_details.cached_tokens > 0)
    expect("previous_response_id", first.id, by_id.previous_response_id)

    question = {"role": "user", "content": messages[turns[2]["index"] - 1]["content"]}
    resent = items_of(messages[:turns[0]["index"]]) + [item.to_dict() for item in first.output] + [result]
    resent += [item.to_dict() for item in by_id.output] + [question]
    by_items, _ = stream(client, input=resent, store=False, **asked)
    check_turn(turns[2], by_items)
    counted = client.responses.input_tokens.count(
        model=model, input=[question], previous_response_id=by_id.id, tools=tools, reasoning=QUIET)
    expect("input_tokens", by_items.usage.input_tokens, counted.input_tokens)

    kept = client.responses.retrieve(by_id.id)
    expect("what was kept", by_id.to_dict(), kept.to_dict())
    listed = list(client.responses.input_items.list(by_id.id, order="asc", limit=2))
    expect("input items", ["message", "message", "function_call", "function_call_output"],
           [item.type for item in listed])
    client.responses.delete(by_id.id)
    for call, wanted in ((lambda: client.responses.retrieve(by_id.id), NotFoundError),
                         (lambda: client.responses.retrieve(by_items.id), NotFoundError),
                         (lambda: client.responses.create(input="x", previous_response_id=by_id.id, **asked), BadRequestError)):
        try:
            call()
        except wanted as error:
            expect("status", 404 if wanted is NotFoundError else 400, error.status_code)
        else:
            sys.exit(f"expected {wanted.__name__}, found an answer")
    return by_items.usage.input_tokens_details.cached_tokens


def thoughts(client, model):
    asked = {"model": model, "input": "What is 2 + 2?", "temperature": 0, "max_output_tokens": 24}
    plain, kinds = None, {}
    for event in client.responses.create(stream=True, **asked):
        kinds[event.type] = kinds.get(event.type, 0) + 1
        if event.type in ("response.completed", "response.incomplete"):
            plain = event.response
    whole = client.responses.create(**asked)
    strip = lambda r: [{k: v for k, v in item.to_dict().items() if k != "id"} for item in r.output]
    expect("streamed equals whole", strip(whole), strip(plain))
    sealed = client.responses.create(
        reasoning={"effort": "high", "summary": "auto"}, include=["reasoning.encrypted_content"], **asked)
    for shown, hidden in zip(whole.output, sealed.output):
        if shown.type == "reasoning":
            expect("the summary is the thought", shown.content[0].text, hidden.summary[0].text)
            expect("encrypted_content", True, isinstance(hidden.encrypted_content, str))
    if whole.status == "incomplete":
        expect("reason", "max_output_tokens", whole.incomplete_details.reason)


def main():
    client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    cached = tool_conversation(client, model, json.loads(TRACE.open().readline()))
    thoughts(client, model)
    expect("a probe", [], client.responses.create(model=model, input=[], max_output_tokens=16).output)
    try:
        client.responses.create(model=model, input="x", max_output_tokens=10**9)
        sys.exit("a limit beyond the context: expected 400, found an answer")
    except BadRequestError as error:
        expect("param", "max_output_tokens", error.param)
    print("ok", cached)


main()
