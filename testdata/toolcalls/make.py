#!/usr/bin/env python3
"""Writes qwen_xml.jsonl: what a model generates, and what must come of it. One JSON object a line:

  name, raw, start (answer | thinking | either), complete (the model ended by itself; false: cut by a limit),
  expect: {reasoning, content, calls: [{name, arguments}], repairs}

`expect` is written by hand from the rules of spec/api.md 12 A; nothing here runs the parser. Run: python3 make.py
"""
import json
import pathlib

CASES = []


def function(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    function("ls", path=STRING),
    function("now"),
    function("write_file", path=STRING, content=STRING),
    function("typed", count=INTEGER, ratio={"type": "number"}, flag={"type": "boolean"}, items={"type": "array"},
             options={"type": "object"}, either={"type": ["string", "null"]}, any={},
             status={"anyOf": [{"enum": ["open", "closed"]}, {"const": "deleted"}]},
             numbered={"enum": [1, 2, 3]}, maybe={"anyOf": [{"type": "integer"}, {"type": "null"}]},
             shaped={"$ref": "#/$defs/shape"}),
]
TOOLS[3]["function"]["parameters"]["$defs"] = {"shape": {"type": "object"}}


def call(name, *parameters):
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def case(name, raw, content="", calls=(), reasoning="", start="answer", complete=True, repairs=(), tools=TOOLS):
    CASES.append({
        "name": name, "raw": raw, "start": start, "complete": complete, "tools": tools,
        "expect": {"reasoning": reasoning, "content": content,
                   "calls": [{"name": n, "arguments": a} for n, a in calls], "repairs": list(repairs)}})


LS = call("ls", ("path", "."))
case("A1 call inside the thought ends it", "I look.\n" + LS, reasoning="I look.", calls=[("ls", {"path": "."})], start="thinking")
case("A1 call inside the thought, then its close", "I look.\n" + LS + "\n</think>\n\nDone.", "Done.", reasoning="I look.",
     calls=[("ls", {"path": "."})], start="thinking")
case("A1 a mention is no call", "Use <tool_call> or <tool_call>\n<function=ls> here.\n</think>\n\nOk.", "Ok.", start="thinking",
     reasoning="Use <tool_call> or <tool_call>\n<function=ls> here.")
case("A1 unfinished call in a cut thought is thought", "Hm.\n<tool_call>\n<function=ls>\n<parameter=path>\n.", start="thinking",
     complete=False, reasoning="Hm.\n<tool_call>\n<function=ls>\n<parameter=path>\n.")
case("A2 two calls", LS + "\n" + call("ls", ("path", "src")), calls=[("ls", {"path": "."}), ("ls", {"path": "src"})])
case("A2 two calls without a line between", LS + call("now"), calls=[("ls", {"path": "."}), ("now", {})])
case("A3 long content", call("write_file", ("path", "a"), ("content", "line of text\n" * 340 + "end")),
     calls=[("write_file", {"path": "a", "content": "line of text\n" * 340 + "end"})])
case("A4 text before a call", "Let me check.\n\n" + LS, "Let me check.", calls=[("ls", {"path": "."})])
case("A4 text on both sides", "Before.\n\n" + LS + "\nAfter.", "Before.\nAfter.", calls=[("ls", {"path": "."})])
case("A5 stray close", "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n</parameter>\n</function>\n</tool_call>",
     calls=[("ls", {"path": "."})], repairs=["stray_close"])
case("A5 stray close before another parameter",
     "<tool_call>\n<function=write_file>\n<parameter=path>\nx\n</parameter>\n</parameter>\n<parameter=content>\ny\n</parameter>\n</function>\n</tool_call>",
     calls=[("write_file", {"path": "x", "content": "y"})], repairs=["stray_close"])
case("A6 stray think at the end", "answer text<think>", "answer text<think>")
case("A7 missing argument", call("write_file", ("path", "x")), calls=[("write_file", {"path": "x"})])
A8 = "A block ends with </tool_call> on its own.\nand </parameter> here\n<filename>"
case("A8 literal closing tags", call("write_file", ("path", "x"), ("content", A8)), calls=[("write_file", {"path": "x", "content": A8})])
case("A8 literal function close", call("write_file", ("path", "x"), ("content", "a </function> b")),
     calls=[("write_file", {"path": "x", "content": "a </function> b"})])
NESTED = "<parameter=path>\nq\n</parameter>\n<parameter=path>\nz"
case("A8 a parameter given already is text", call("write_file", ("path", "x"), ("content", NESTED)),
     calls=[("write_file", {"path": "x", "content": NESTED})])
case("A8 markup is not HTML", call("write_file", ("path", "x"), ("content", "<b>&lt;&amp;</b> <!-- \\n \" -->")),
     calls=[("write_file", {"path": "x", "content": "<b>&lt;&amp;</b> <!-- \\n \" -->"})])
case("A8 think tags in a value", call("write_file", ("path", "x"), ("content", "<think>\n</think>")),
     calls=[("write_file", {"path": "x", "content": "<think>\n</think>"})])
case("A10 cut inside a value", "Go.\n<tool_call>\n<function=ls>\n<parameter=path>\n/tm", "Go.", complete=False)
case("A10 cut after one whole call", LS + "\n<tool_call>\n<function=ls>\n<parameter=path>\n/tm", calls=[("ls", {"path": "."})], complete=False)
case("A10 cut inside the opening tag", "Go. <tool_c", "Go. <tool_c", complete=False)
case("A11 no arguments", call("now"), calls=[("now", {})])
case("A11 no arguments, one line", "<tool_call><function=now></function></tool_call>", calls=[("now", {})])
case("A12 types", call("typed", ("count", "5"), ("ratio", "1.50"), ("flag", "true"), ("items", "[1, \"a\"]"), ("options", "{\"b\": null}"),
                       ("either", "null"), ("any", "7"), ("status", "deleted"), ("numbered", "2"), ("maybe", "null"), ("shaped", "{\"k\": 1}")),
     calls=[("typed", {"count": 5, "ratio": 1.5, "flag": True, "items": [1, "a"], "options": {"b": None}, "either": "null", "any": "7",
                       "status": "deleted", "numbered": 2, "maybe": None, "shaped": {"k": 1}})])
case("A12 text where the schema wants a number", call("typed", ("count", "many"), ("items", "[1,"), ("flag", "True")),
     calls=[("typed", {"count": "many", "items": "[1,", "flag": "True"})])
case("A12 structure over lines", call("typed", ("options", "{\n  \"a\": [\n    1\n  ]\n}")), calls=[("typed", {"options": {"a": [1]}})])
case("A12 unknown parameter is text", call("ls", ("depth", "3")), calls=[("ls", {"depth": "3"})])
case("A12 unknown function is returned", call("other", ("x", "3")), calls=[("other", {"x": "3"})])
case("A17 unclosed thought", "abc", reasoning="abc", start="thinking", complete=False)
case("A17 closed thought", "abc</think>x", "x", reasoning="abc", start="thinking")
case("A17 quoted think in the answer", "abc\n</think>\n\nThe tag <think> opens, </think> closes.",
     "The tag <think> opens, </think> closes.", reasoning="abc", start="thinking")
case("A17 thought off", "x <think> y", "x <think> y")
case("A17 the model opens its thought", "<think>\nabc\n</think>\n\nx", "x", reasoning="abc", start="either")
case("A17 the model answers at once", "x</think>", "x</think>", start="either")
case("A17 empty thought", "\n</think>\n\nx", "x", start="thinking")
case("A24 white space is no content", "abc\n</think>\n\n" + LS, reasoning="abc", calls=[("ls", {"path": "."})], start="thinking")
case("A24 white space between calls", "\n\n" + LS + "\n\n\n" + LS + "\n\n", calls=[("ls", {"path": "."})] * 2)
case("newlines of a value", call("write_file", ("content", "\n\na\n\n")), calls=[("write_file", {"content": "\n\na\n\n"})])
case("empty value", call("write_file", ("content", "")), calls=[("write_file", {"content": ""})])
case("value without lines around it", "<tool_call><function=ls><parameter=path>.</parameter></function></tool_call>", calls=[("ls", {"path": "."})])
case("unicode and controls", call("write_file", ("content", "käse \u2603 \U0001f600\ttab \"quote\" \\ back\r\n")),
     calls=[("write_file", {"content": "käse \u2603 \U0001f600\ttab \"quote\" \\ back\r\n"})])
case("not a call", "See <tool_call> in the manual.", "See <tool_call> in the manual.", repairs=["not_a_call"])
case("Hermes form is text for now", "<tool_call>\n{\"name\": \"ls\"}\n</tool_call>", "<tool_call>\n{\"name\": \"ls\"}\n</tool_call>", repairs=["not_a_call"])
case("unfinished call of a finished answer is text", "Hm. <tool_call>\n<function=ls>\n<parameter=path>\n.", repairs=["unfinished_call"],
     content="Hm.<tool_call>\n<function=ls>\n<parameter=path>\n.")
case("function close missing", "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n</tool_call>", calls=[("ls", {"path": "."})],
     repairs=["missing_function_close"])
case("parameter close missing", "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</function>\n</tool_call>", calls=[("ls", {"path": "."})],
     repairs=["missing_parameter_close"])
case("call close missing", "<tool_call>\n<function=ls>\n<parameter=path>\n.\n</parameter>\n</function>", calls=[("ls", {"path": "."})],
     repairs=["missing_call_close"])
case("text between parameters", "<tool_call>\n<function=ls>\nhm\n<parameter=path>\n.\n</parameter>\n</function>\n</tool_call>",
     calls=[("ls", {"path": "."})], repairs=["stray_text"])
case("plain text keeps its end", "text \n", "text \n")
case("no tools: all is text", LS, LS, tools=None)

with open(pathlib.Path(__file__).parent / "qwen_xml.jsonl", "w") as out:
    for one in CASES:
        out.write(json.dumps(one, ensure_ascii=False) + "\n")
