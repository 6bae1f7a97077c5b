#!/usr/bin/env python3
"""Makes testdata/text/template_golden.jsonl: what Jinja renders, set up as Hugging Face transformers does.

Usage: pip install jinja2==3.1.6; python3 tools/make_template_golden.py   (from the root of the source tree)

A line holds `template` (a text, or "@NAME" for one of testdata/text/NAME.jinja or "@bundled" for the bundled model's),
`variables`, and `output`, or `fails` where Jinja raises. Left out is where Warmpath is stricter on purpose (`x.__class__`
is an error, not empty) or more lenient (`list.append`).
"""
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = "testdata/text/template_golden.jsonl"
REPLAY = "models/flash-next-mini/replay/agentic-200.jsonl"


class Generation(Extension):
    """{% generation %}: renders its body, as transformers' own extension does."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "never compared"
    return env


DATA = {
    "s": "Hello, W\u00f6rld", "empty": "", "spaced": " \t two  words \n", "n": 7, "neg": -3, "x": 2.5, "big": 18446744073709551615,
    "yes": True, "no": False, "nil": None, "list": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": "x", "C": None, "items": "shadowed"}, "quote": "it's \"q\" \\ \n\u200b\u00e9\U0001f600",
    "people": [{"name": "Ann", "age": 31, "tags": ["a", "b"]}, {"name": "bob", "age": 25, "tags": []},
               {"name": "Cy", "age": 31, "ok": True, "in": {"deep": "v"}}],
    "floats": [1.0, 0.1, 1e16, 1e15, 1e-5, 0.0001, 123456789.125, -0.0, 1e300], "html": "<a href='x'>&\"</a>",
    "lines": "one\ntwo\n\nthree\n", "multi": "x\r\ny\rz",
}

# Divided by ";;".
EXPRESSIONS = """
s ;; s[0] ;; s[-1] ;; s[1:4] ;; s[::-1] ;; s[::2] ;; s[5:1:-2] ;; s[-3:] ;; s[:100] ;; s[100] ;; list[::-1] ;; list[1:] ;; list[:-1] ;; list[-1] ;; list[9] ;; nested[1][1][0]
n + 2 * 3 - 1 ;; n / 2 ;; n // 2 ;; neg // 2 ;; neg % 2 ;; n % neg ;; 2 ** 3 ** 2 ;; -2 ** 2 ;; x * 2 ;; x // 1 ;; 7.5 % 2 ;; -7.5 % 2 ;; 1 - 2 - 3 ;; n / 0 ;; 2 ** -1 ;; 10 / 5
"a" ~ 1 ~ none ~ true ~ 1.0 ~ [1, "b"] ;; "a" + "b" * 3 ;; [1] + [2] * 2 ;; "x" + 1 ;; 1 + "x" ;; "ab" "cd" ;; 'it\\'s' ;; "\\t\\u00e9\\x41|"
1 < 2 ;; 1 < 2 < 3 ;; 1 < 3 < 2 ;; "a" < "b" ;; [1, 2] < [1, 3] ;; 1 == 1.0 ;; true == 1 ;; "1" == 1 ;; none == none ;; missing == other ;; {"a": 1} == {"a": 1.0} ;; (1,) == [1]
"W" in s ;; "z" in s ;; 1 in list ;; 5 not in list ;; "a" in d ;; "z" not in d ;; "a" in missing ;; 1 in s ;; (1, 2) == (1, 2)
not yes ;; yes and n ;; no or "fallback" ;; no and missing.x ;; nil or empty or 0 ;; yes or missing.x ;; not (yes and no) ;; "t" if yes else "f" ;; "t" if no ;; ("t" if no) is defined
missing ;; missing.x ;; missing|default("d") ;; nil|default("d") ;; empty|default("d", true) ;; nil ;; d("z", boolean=true) ;; d.missing ;; d["missing"] ;; d.a ;; d["a"] ;; d.get("a") ;; d.get("q") ;; d.get("q", 5)
d.items() ;; d["items"] ;; d.items ;; d.keys() ;; list() ;; d|items|list ;; d|length ;; s|length ;; list|count ;; missing|length ;; 5|length ;; d|tojson ;; d|string
true ;; false ;; none ;; True ;; False ;; None ;; 1 ;; 1.0 ;; 1e3 ;; 1_000 ;; [] ;; {} ;; () ;; (1,) ;; [1, [2, "x"]] ;; {"k": [none, true]} ;; {1: 2} ;; big ;; big + 1 ;; floats ;; floats|tojson ;; -0.0 ;; 1e16 ;; x|string
quote ;; [quote] ;; quote|tojson ;; {"q": quote}|tojson(ensure_ascii=true) ;; people|tojson(indent=2) ;; [[], {}]|tojson(indent=2) ;; d|tojson(sort_keys=true) ;; list|tojson(separators=(",", ":")) ;; missing|tojson
spaced|trim ;; s|trim("Hd") ;; spaced.strip() ;; spaced.lstrip() ;; spaced.rstrip() ;; s.strip("Hdl") ;; s.upper() ;; s.lower() ;; "hELLO wORLD".title() ;; "hELLO wORLD-x (y".capitalize() ;; "they're bill's".title()
s|upper ;; s|lower ;; "hello wORLD-foo (bar) it's"|title ;; "hELLO"|capitalize ;; "straße"|upper ;; "İ"|lower ;; s.startswith("He") ;; s.startswith(("x", "H")) ;; s.endswith("d") ;; "".startswith("")
"a,b,,c".split(",") ;; "a,b,,c".split(",", 1) ;; " a  b ".split() ;; " a  b c".split(none, 1) ;; "a b c".rsplit(" ", 1) ;; lines.splitlines() ;; multi.splitlines() ;; "x".split("")
"aXbX".replace("X", "--") ;; "aXbX".replace("X", "-", 1) ;; "ab".replace("", "-") ;; "aXbX"|replace("X", "") ;; s.find("W") ;; s.find("zz") ;; s.rfind("l") ;; s.count("l") ;; s.index("W") ;; s.index("zz") ;; s.nothing ;; s.nothing()
",".join(words) ;; words|join(", ")|list|join ;; words|join("-", attribute="x") ;; people|join(", ", attribute="name") ;; ",".join(list) ;; "abc"|list ;; "abc"|first ;; "abc"|last ;; []|first ;; list|first ;; list|last
list|sort ;; words|sort ;; words|sort(case_sensitive=true) ;; list|sort(reverse=true) ;; people|sort(attribute="age")|map(attribute="name")|join(",") ;; [1, "a"]|sort ;; d|dictsort ;; {"b": 1, "a": 2}|dictsort(by="value") ;; {"b": 1, "a": 2}|dictsort(reverse=true)
list|reverse|list ;; s|reverse ;; words|unique|list ;; words|unique(case_sensitive=true)|list ;; words|map("upper")|list ;; people|map(attribute="age")|list ;; people|map(attribute="in.deep")|list ;; people|map(attribute="in.deep", default="-")|list
people|selectattr("ok")|list|length ;; people|selectattr("age", "gt", 30)|map(attribute="name")|list ;; people|rejectattr("age", "equalto", 31)|map(attribute="name")|join ;; list|select("odd")|list ;; list|reject("odd")|list ;; [0, 1, ""]|select|list ;; people|selectattr("ok", "defined")|list|length
"12"|int ;; "12.9"|int ;; "x"|int ;; "x"|int(5) ;; "1f"|int(0, 16) ;; 12.7|int ;; nil|int ;; "1.5"|float ;; "x"|float ;; "x"|float(2.5) ;; 3|float ;; yes|int ;; neg|abs ;; -2.5|abs ;; 2.5|round ;; 3.5|round ;; 2.675|round(2) ;; 2.1|round(method="ceil") ;; 42.55|round(1, "floor") ;; 7|round
lines|indent ;; lines|indent(2, true) ;; lines|indent(2, blank=true) ;; lines|indent("> ") ;; html|escape ;; html|e ;; html|safe ;; list|sum ;; people|sum(attribute="age") ;; list|max ;; list|min ;; words|min ;; []|max ;; people|max(attribute="age")
n is defined ;; missing is defined ;; missing is undefined ;; nil is none ;; s is string ;; n is string ;; d is mapping ;; list is mapping ;; list is iterable ;; s is iterable ;; n is iterable ;; d is iterable ;; missing is iterable ;; list is sequence ;; d is sequence ;; s is sequence ;; n is sequence
n is number ;; x is number ;; yes is number ;; n is integer ;; yes is integer ;; x is float ;; yes is boolean ;; n is boolean ;; yes is true ;; n is true ;; no is false ;; nil is false ;; n is odd ;; n is even ;; n is divisibleby 7 ;; n is divisibleby(2) ;; n is eq 7 ;; n is equalto 8 ;; n is ne 7 ;; n is lt 8 ;; n is ge 7 ;; n is gt(7)
1 is in list ;; "q" is in s ;; n is not defined ;; missing is not none ;; s is lower ;; "abc" is lower ;; "ABC" is upper ;; range is callable ;; n is callable ;; yes is sameas true ;; 1 is sameas true ;; n is not odd and yes ;; range is defined ;; raise_exception is defined ;; namespace is defined
range(4)|list ;; range(2, 8, 3)|list ;; range(5, 0, -2)|list ;; range(0)|list ;; range(100001)|list|length ;; range(3)|join ;; dict(a=1, b="x") ;; dict(d, z=1)|length ;; dict() ;; namespace(a=1).a ;; namespace({"q": 2}).q ;; namespace().z
"".__class__.__mro__ ;; d.update({}) ;; d.pop("a") ;; raise_exception("stop here") ;; d.a.b.c ;; d.x.y ;; nil.x ;; 5.5.x ;; -n ;; +n ;; -"x" ;; - -n ;; not not n
words|length > 3 ;; (list|length) ** 2 ;; list|map("string")|join("+") ;; [d.b, d.a] ;; {"x": d.b} ;; {"x": d.b}.x ;; [1, 2, 3][1] ;; "abc"[1] ;; (1, 2)[0] ;; s.split(", ")[1][0] ;; people[0].name ;; people[0]["tags"][1] ;; people.0.name ;; people[-1]["in"].deep
"a" if n > 5 and s else "b" ;; "a" if n < 5 else "b" if n < 6 else "c" ;; [("k", 1)] ;; d.items() ;; list|first ;; "A" ~ "B" | lower ;; ("A" ~ "B") | lower ;; -5 | abs ;; 1 + 2 | string ;; n is string or yes ;; "isdigit".isdigit() ;; "123".isdigit() ;; "½".isalnum() ;; "".isspace() ;; " \\t".isspace()
"abc".isalpha() ;; "Ab".isupper() ;; "AB".isupper() ;; "xab".removeprefix("x") ;; "abx".removesuffix("x") ;; d.copy()|length ;; words.index("fig") ;; words.count("fig") ;; "x" * n ;; "x" * -1 ;; [0] * 3 ;; 3 * "ab" ;; "x" * 2.0 ;; loop ;; caller
"""

TEMPLATES = [
    "{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index0 }}{{ x }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }} {% else %}none{% endfor %}",
    "{% for x in [] %}a{% else %}empty{% endfor %}|{% for x in missing %}a{% else %}gone{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}{% for (a, b) in [[1, 2]] %}{{ b }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in list %}{% for y in words %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}\n{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in 'h\u00e9' %}[{{ x }}]{% endfor %}{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}{% for x in 5 %}{% endfor %}",
    "{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=0, l=[]) %}{% for i in list %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.x }} {{ ns.l }}",
    "{% set a, b = 1, 'two' %}{{ b }}{{ a }}{% set t = 1, 2 %}{{ t }}{% set c %} block {{ a }} {% endset %}[{{ c }}]{% set e | trim | upper %} f {% endset %}[{{ e }}]",
    "{% if n > 10 %}a{% elif n > 5 %}b{% elif n > 1 %}c{% else %}d{% endif %}{% if missing %}x{% endif %}{% if x %}{% set q = 'leaks' %}{% endif %}{{ q }}",
    "{% macro f(a, b='B', c=none) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=1) }}{{ f() }}{{ f('x') | upper }}",
    "{% macro g(n) %}{{ n }}{% if n > 0 %},{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(5) }}",
    "{% macro h(x, y=x ~ '!') %}{{ y }}{% endmacro %}{{ h('a') }}{% set later = 1 %}{% macro k() %}{{ later }}{{ s }}{% endmacro %}{{ k() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "  {% if yes %}  \n  kept\n  {% endif %}\n  after\n",
    "  {%- if yes -%}  \n  kept\n  {%- endif -%}\n  after\n\n",
    "a\n  {%+ if yes %}\nb\n  {%- endif +%}\nc\n",
    "a {# comment #} b\n   {# alone #}\nc\n{#- strips -#}\n d {# \n multi #}\ne",
    "x\n    {{ s }}\n  {{- s -}}  \n y {{ 1 }}\n\n",
    "{% raw %}{{ not }} {% this %}{% endraw %}\n  {% raw -%}\n  a {{ b }}\n  {%- endraw %}  z",
    "line1\r\nline2\rline3\n{% if yes %}\r\nx\r\n{% endif %}\r\n",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | trim %} aXa {% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% generation %}said {{ n }}{% set inner = 1 %}{% endgeneration %}{{ inner }}|",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ '}}' }}{{ '{%' }}{% if '%}' %}ok{% endif %}",
    "{{ raise_exception('the words: ' ~ s) }}", "{% for m in people %}{{ m.name }}{{ raise_exception('no ' + m.name) }}{% endfor %}",
    "{{ 'a' 'b' }}{{ '\\n' }}{{ '\\\\n' }}{{ \"\\\"\" }}{{ '\\d' }}{{ 'multi\nline' }}",
    "{% for p in people | selectattr('age', 'ge', 30) | sort(attribute='name', reverse=true) %}{{ p.name }} {% endfor %}",
    "{% set m = {'k': 'v'} %}{{ m.k }}{{ m['k'] }}{% set l = [1] + [2] %}{{ l }}{{ l | length }}",
    "{{ 1, 2 }}", "{{ missing }}|{{ missing.x }}", "{{ x.y.z }}", "{% set x.y = 1 %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% macro outer() %}{% macro inner(v) %}({{ v }}){% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() }}",
    "{% for x in list %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% if a is defined and a %}1{% elif not (b is defined) %}2{% endif %}{{- '3' if 'a' in ['a', 'b'] and not no }}",
    "{%set a=1%}{{a}}{%-   if   a==1   -%}   yes   {%-endif%}",
    "{{ 'x' }}\n{% set a = 1 %}\n{{ a }}\n   {% set b = 2 %}   \n{{ b }}\n",
    "{% for k, v in {'a': 1, 'b': [1]} | items %}{{ k }}{{ v }}{% endfor %}{{ loop }}{% for c in d %}{{ loop.nothing }}{% endfor %}",
]

# Refused when parsed, by both.
BROKEN = ["{% if %}", "{{ }}", "{% endfor %}", "{% for x %}{% endfor %}", "{{ a b }}", "{% if a %}", "{{ 'open }}", "{{ (1 }}", "{% unknown %}", "{{ a | nofilter }}",
          "{{ a is notest }}", "{# open", "{% raw %}x", "{% set %}", "{% macro %}{% endmacro %}", "{{ a ! }}", "{% break %}", "{{ f(a=1, 2) }}", "{% set true = 1 %}", "{{ [1, }}"]


def conversations():
    """Of the bundled template: recorded ones, shortened, and edge cases."""
    out = []
    with open(REPLAY, encoding="utf-8") as file:
        for number, line in enumerate(file):
            recorded = json.loads(line)
            if number % 4:
                continue
            messages = []
            for message in recorded["messages"][:9]:
                message = json.loads(json.dumps(message))
                for call in message.get("tool_calls") or []:
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
                if isinstance(message.get("content"), str):
                    message["content"] = message["content"][:160]
                messages.append(message)
            out.append({"messages": messages, "tools": recorded["tools"][:2], "add_generation_prompt": number % 8 == 0,
                        **recorded["chat_template_kwargs"]})
    user, answer = {"role": "user", "content": "h\u00e9llo \U0001f600 <|im_end|>"}, {"role": "assistant", "content": "ok", "reasoning_content": "think"}
    call = {"role": "assistant", "content": "text", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"a": "s\n", "b": [1, 2.0, None, True, {"k": "\u00e9"}], "c": 1e-7, "d": -0.0}}},
        {"name": "g", "arguments": {}}]}
    tool = {"role": "tool", "content": [{"type": "text", "text": "part1"}, {"type": "image"}, {"type": "text", "text": "part2"}]}
    for extra in ({}, {"add_generation_prompt": True}, {"enable_thinking": False, "add_generation_prompt": True}, {"preserve_thinking": False},
                  {"tools": None}, {"tools": []}, {"tools": [{"type": "function", "function": {"name": "f", "description": "d\"\\ <b> '\u00e9'", "parameters": {}}}]}):
        out.append({"messages": [{"role": "system", "content": "sys"}, user, answer, user, call, tool, tool, answer], **extra})
    out.append({"messages": [user, {"role": "system", "content": "late"}]})
    out.append({"messages": [{"role": "robot", "content": "x"}]})
    out.append({"messages": [{"role": "user", "content": None}, {"role": "assistant"}]})
    out.append({"messages": []})
    out.append({})
    return out


def main():
    env = environment()
    shared = {"@bundled": json.load(open("models/flash-next-mini/tokenizer_config.json"))["chat_template"]}
    for name in ("agent", "blocks"):
        shared["@" + name] = open(f"testdata/text/{name}.jinja", encoding="utf-8").read()
    cases = [("{{ " + e.strip() + " }}", None) for line in EXPRESSIONS.strip().splitlines() for e in line.split(";;")] + [(t, None) for t in TEMPLATES + BROKEN]
    for template in shared:
        cases += [(template, variables) for variables in conversations()]
    failed = 0
    with open(OUT, "w", encoding="utf-8") as out:
        out.write(json.dumps({"data": DATA}, ensure_ascii=True) + "\n")
        for template, variables in cases:
            line = {"template": template}
            if variables is not None:
                line["variables"] = variables
            try:
                line["output"] = env.from_string(shared.get(template, template)).render(**(DATA if variables is None else variables))
            except Exception as fault:  # Whatever Jinja raises, the template is refused or fails.
                failed += 1
                line["fails"] = type(fault).__name__
                if type(fault).__name__ == "TemplateError":
                    line["raised"] = str(fault)
            if "<generator" in line.get("output", "") or " object at 0x" in line.get("output", "") or "<built-in" in line.get("output", "") or "dict_" in line.get("output", ""):
                continue  # An address, or a name of Python's own, which no template means to print.
            out.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n")
    print("jinja2", jinja2.__version__, len(cases), "cases,", failed, "of them fail")


if __name__ == "__main__":
    main()
