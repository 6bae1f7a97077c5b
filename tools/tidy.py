#!/usr/bin/env python3
"""Checks what a compiler does not: formatting, the layer list, sizes, dead files, vendor calls, the size of the tree.

usage: tidy.py [--self-test]      prints one line per finding; exit 1 if there is any

The layer list is src/LAYERS: a row names what its folder may include. Tests, fuzzers and benches may include testing/ too.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
TESTLIKE = re.compile(r"_(test|fuzz|bench)\.cpp$")
VENDOR = re.compile(r"\b(cuda[A-Z]\w*|hip[A-Z]\w*|cublas\w+|__global__|_mm\d*_\w+|hwy::)")
VENDOR_FOLDERS = ("device", "kernels", "testing")
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")
PLACES = re.compile(r"/(home|root|work)/\w|registry\.|(?<!fence\.)proxy\.")
FILE_LINES_MAX, FUNCTION_LINES_MAX, COLUMNS_MAX = 600, 70, 120
TREE_BYTES_MAX = 60 << 20


def read_layers(text):
    """({folder: folders it may include}, findings); a row may name only rows below it."""
    rows = [line.split("#")[0].split(":") for line in text.splitlines() if line.split("#")[0].strip()]
    layers = {name.strip(): set(allowed.split()) for name, allowed in rows}
    names = list(layers)
    findings = [f"src/LAYERS: {name} names {lower}, which is not a row below it"
                for at, name in enumerate(names) for lower in sorted(layers[name]) if lower not in names[at + 1:]]
    return layers, findings


def layer_findings(path, text, layers):
    """Includes of one file under src/ that the layer list does not allow."""
    folder = path.split("/")[1]
    if folder == "testing":
        return []
    allowed = layers.get(folder)
    if allowed is None:
        return [f"{path}: folder {folder} has no row in src/LAYERS"]
    findings = []
    for included in INCLUDE.findall(text):
        target = included.split("/")[0]
        if "/" in included and target not in layers and target != "testing":
            continue  # A library's own header.
        if "/" not in included:
            findings.append(f'{path}: include "{included}" by its path from src/')
        elif target != folder and target not in allowed and not (target == "testing" and TESTLIKE.search(path)):
            findings.append(f"{path}: includes {included}; {folder} may include {' '.join(sorted(allowed)) or 'nothing'}")
    return findings


ROW = re.compile(r'^\s*(\{?\.\w|\{?"|\{\{)')  # A row of a table, which is exempt.


def function_findings(path, text):
    """Functions longer than a screen: from the line that opens the body to the brace in the same column."""
    findings, begin, indent, rows = [], None, 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if begin is None:
            opens = re.match(r"^( {0,2})[A-Za-z_~].*\)[^;]*\{$", line)
            if opens and not re.match(r"^\s*(class|struct|namespace|enum|union|extern)\b", line):
                begin, indent, rows = number, len(opens.group(1)), 0
        elif ROW.match(line):
            rows += 1
        elif line.startswith(" " * indent + "}"):
            if number - begin - rows > FUNCTION_LINES_MAX:
                findings.append(f"{path}:{begin}: a function of {number - begin - rows} lines; at most {FUNCTION_LINES_MAX}")
            begin = None
    return findings


def text_findings(path, text):
    findings = []
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        findings.append(f"{path}: {len(lines)} lines; expected at most {FILE_LINES_MAX}")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and 'R"' not in line:
            findings.append(f"{path}:{number}: {len(line)} columns; expected at most {COLUMNS_MAX}")
    folder = path.split("/")[1] if path.startswith("src/") else ""
    code = re.sub(r"//.*", "", text)
    if folder and folder not in VENDOR_FOLDERS and (found := VENDOR.search(code)):
        findings.append(f"{path}: vendor call {found.group(0)} outside device/ and kernels/")
    if folder not in ("", "app", "testing") and not TESTLIKE.search(path) and (found := ENVIRONMENT.search(code)):
        findings.append(f"{path}: reads the environment ({found.group(0)}); app/ alone may")
    return findings


def definition_findings(sources):
    """Types defined twice under one name outside anonymous namespaces: the linker keeps one's functions for both."""
    places = {}
    for path, text in sources.items():
        spaces = []
        for number, line in enumerate(text.splitlines(), 1):
            if opened := re.match(r"^namespace\s*([\w:]*)\s*\{", line):
                spaces.append(opened.group(1))
            elif re.match(r"^\}\s*// namespace", line) and spaces:
                spaces.pop()
            elif (found := re.match(r"^(?:struct|class|union)\s+(?:\[\[\w+\]\]\s+)?(\w+)\s*(?:final\s*)?(?:[:{]|$)(?!:)", line)):
                if "" not in spaces:
                    places.setdefault("::".join(spaces) + "::" + found.group(1), []).append(f"{path}:{number}")
    return [f"{' and '.join(at)}: two definitions of {name}" for name, at in places.items() if len(at) > 1]


def dead_findings(sources):
    """Headers that nothing includes. Every .cpp of a folder is built, so none of them is dead."""
    included = set()
    for text in sources.values():
        included.update(INCLUDE.findall(text))
    return [f"{path}: no file includes it" for path in sources
            if path.startswith("src/") and path.endswith(".h") and path[len("src/"):] not in included]


def format_findings(paths):
    found = []
    for start in range(0, len(paths), 40):
        run = subprocess.run(["clang-format", "--dry-run", *paths[start:start + 40]], cwd=ROOT, capture_output=True,
                             text=True)
        found += sorted({line.split(":")[0] for line in run.stderr.splitlines() if "warning" in line})
    return [f"{path}: not formatted; run clang-format -i" for path in found]


def self_test():
    """Each check must be able to fail: planted violations, one per check."""
    layers, _ = read_layers("app: core\ntext: core\ncore:\n")
    planted = {
        "layers": layer_findings("src/core/a.h", '#include "text/b.h"\n', layers),
        "the order of layers": read_layers("core: app\napp:\n")[1] or read_layers("core:\napp: core\n")[1],
        "bare includes": layer_findings("src/text/a.cpp", '#include "b.h"\n', layers),
        "file length": text_findings("src/text/a.cpp", "x\n" * 601),
        "columns": text_findings("src/text/a.cpp", "x" * 121),
        "vendor calls": text_findings("src/text/a.cpp", "cudaMalloc(&p, 4);"),
        "the environment": text_findings("src/text/a.cpp", 'getenv("HOME");'),
        "function length": function_findings("src/text/a.cpp", "void f() {\n" + "  x();\n" * 71 + "}\n"),
        "definitions": definition_findings({"src/a/a.h": "namespace wp {\nstruct A {\n", "src/b/b.h": "namespace wp {\nstruct A {\n"}),
        "dead headers": dead_findings({"src/text/a.h": ""}),
    }
    allowed = layer_findings("src/text/a_test.cpp", '#include "testing/b.h"\n#include "core/c.h"\n', layers)
    return [f"tidy.py: the check of {name} did not fire on a planted violation" for name, hit in planted.items()
            if not hit] + [f"tidy.py: a false finding: {line}" for line in allowed]


def main():
    if sys.argv[1:] == ["--self-test"]:
        findings = self_test()
        print("\n".join(findings) or "tidy: every check fires")
        return 1 if findings else 0
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    tracked = [path for path in listed if path and (ROOT / path).is_file()]
    code = [path for path in tracked if path.endswith((".h", ".cpp", ".cu")) and path.startswith(("src/", "tests/"))]
    sources = {path: (ROOT / path).read_text() for path in code}
    layers, findings = read_layers((ROOT / "src/LAYERS").read_text())
    for path, text in sources.items():
        if path.startswith("src/"):
            findings += layer_findings(path, text, layers)
        findings += text_findings(path, text) + function_findings(path, text)
    page = [path for path in tracked if path.startswith("web/")]
    for path in page:
        findings += text_findings(path, (ROOT / path).read_text())
    scripts = [path for path in page if path.endswith(".js")]
    findings += definition_findings(sources) + dead_findings(sources) + format_findings(code + scripts) + self_test()
    for path in tracked:
        if path.startswith("models/") or path == "tools/tidy.py" or not path.endswith((".py", ".md", ".cpp", ".h", "do")):
            continue
        if found := PLACES.search((ROOT / path).read_text(errors="replace")):
            findings.append(f"{path}: names a place of one machine: {found.group(0)}")
    size = sum((ROOT / path).stat().st_size for path in tracked)
    if size > TREE_BYTES_MAX:
        findings.append(f"the tracked tree has {size >> 20} MiB; expected at most {TREE_BYTES_MAX >> 20}")
    print("\n".join(findings) or f"tidy: {len(code)} files clean")
    return 1 if findings else 0


sys.exit(main())
