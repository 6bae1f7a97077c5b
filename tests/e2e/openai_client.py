#!/usr/bin/env python3
"""A streamed tool-call conversation with the official client, as an agent holds it.

usage: openai_client.py URL
The conversation is the first of the bundled replay: the model calls a tool, is given the recorded result, and answers.
Exit 1 with one line if anything is not as expected.
"""
import json
import pathlib
import sys

from openai import BadRequestError, OpenAI

TRACE = pathlib.Path(__file__).resolve().parents[2] / "models/flash-next-mini/replay/agentic-200.jsonl"


def expect(what, expected, found):
    if expected != found:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")


def stream(client, model, record, messages):
    """One streamed turn: content, calls as (name, arguments), finish reason, usage."""
    content, calls, finish, usage = "", {}, None, None
    chunks = client.chat.completions.create(
        model=model, messages=messages, tools=record["tools"], temperature=0, max_tokens=256, stream=True,
        stream_options={"include_usage": True}, extra_body={"chat_template_kwargs": record["chat_template_kwargs"]})
    for chunk in chunks:
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": None, "name": "", "arguments": ""})
                call["id"] = part.id or call["id"]
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
            finish = choice.finish_reason or finish
    return content, [calls[i] for i in sorted(calls)], finish, usage


def main():
    client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    record = json.loads(TRACE.open().readline())
    cached = 0
    for number, turn in enumerate(record["expected"][:3]):
        messages = record["messages"][:turn["index"]]
        content, calls, finish, usage = stream(client, model, record, messages)
        expect("calls", [(c["name"], c["arguments"]) for c in turn["tool_calls"]],
               [(c["name"], json.loads(c["arguments"])) for c in calls])
        expect("content", turn["content"], content)
        expect("finish_reason", "tool_calls" if turn["tool_calls"] else "stop", finish)
        expect("ids", True, all(c["id"] for c in calls))
        expect("usage adds up", usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        cached = usage.prompt_tokens_details.cached_tokens
        expect(f"turn {number} is warm", number > 0, cached > 0)
    whole = client.chat.completions.create(
        model=model, messages=record["messages"][:record["expected"][0]["index"]], tools=record["tools"], temperature=0,
        max_tokens=256, extra_body={"chat_template_kwargs": record["chat_template_kwargs"]})
    expect("the same turn at once", record["expected"][0]["tool_calls"][0]["name"],
           whole.choices[0].message.tool_calls[0].function.name)
    try:
        client.chat.completions.create(model=model, messages=[], max_tokens=4)
        sys.exit("an empty conversation: expected 400, found an answer")
    except BadRequestError as error:
        expect("status", 400, error.status_code)
    print("ok", cached)


main()
