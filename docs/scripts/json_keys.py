"""The keys in JSON output.

Those of version 1 of the HTTP API come from its models, and those of the commands from help texts and recorded output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cpsched_bridge.web import api_v1
from docs.scripts.command_tree import commands
from docs.scripts.markdown import code, document, table

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "corpus" / "data" / "facts" / "json.txt"
"""One line per value, `json/COMMAND/KEY/... = VALUE`, for every command that has `--json` and needs no bridge."""
COMMANDS = {
    "accuracy intervals": "accuracy --intervals", "start times": "accuracy start-times", "study dry": "study --dry-run",
    "benchmark dry": "benchmark --dry-run",
    **{name: name for name in (
        "simulate", "compare", "accuracy", "study", "whatif", "tune", "dispatchers", "predictors", "metrics",
    )},
}  # fmt: skip
"""The command for each name of a recorded output."""
INTRODUCTION = """\
With `--json`, a command prints one JSON value on stdout. A command that fails prints
`{"error": {"kind": ..., "message": ..., "file": ..., "line": ...}}`; `file` and `line` locate a fault in a plug-in and
are null otherwise. In a key, `[]` stands for the elements of a list, and `NAME` for a name from the data, such as a
policy's. A later release may add keys. The keys of `/api/v1` never change their meaning within version 1."""
BRIDGE = """\
These commands read the bridge's files. Times ending in `_unix_s` are the host's Unix time, and times ending in `_ago_s`
count back from now. Other times ending in `_s` are seconds on the cluster's clock."""

Tree = dict[str, Any]


def page() -> str:
    """Return the page with the keys."""
    recorded = _recorded()
    parts = [INTRODUCTION, "## Commands of the bridge", BRIDGE]
    rows = [(code(f"cpsched {each.name}"), _keys_in_help(each.details)) for each in commands()]
    parts += [table(("command", "value"), [row for row in rows if row[1]]), "## Commands of the simulator"]
    for name, command in sorted(COMMANDS.items(), key=lambda item: item[1]):
        if name in recorded:
            rows = [(code(key), code(example[:60])) for key, example in _leaves(_collapsed(recorded[name]))]
            parts += [f"### `cpsched {command} --json`", table(("key", "example"), rows)]
    return document("JSON", *parts, "## HTTP API, version 1", *_api())


def _keys_in_help(details: str) -> str:
    _, found, keys = " ".join(details.split()).partition("--json prints ")
    return keys if found else ""


def _api() -> Iterator[str]:
    """Yield a section for each path, then one for each type of value."""
    found = api_v1.build_openapi_document()
    for path, methods in found["paths"].items():
        rows = [
            (code(each["name"]), "yes" if each["required"] else "no", each["description"])
            for each in methods["get"]["parameters"]
        ]
        yield f"### `GET {path}`\n\n{methods['get']['summary']}"
        yield table(("parameter", "required", "meaning"), rows)
        codes = [(code(status), answer["description"]) for status, answer in methods["get"]["responses"].items()]
        yield table(("status", "meaning"), codes)
    for name, schema in found["components"]["schemas"].items():
        if "properties" not in schema:
            yield f"### {name}\n\n{schema.get('description', '')}\n\n{_type(schema)}"
            continue
        rows = [(code(key), _type(each), each.get("description", "")) for key, each in schema["properties"].items()]
        yield f"### {name}\n\n{schema.get('description', '')}"
        yield table(("key", "type", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(code, schema["enum"]))
    if "prefixItems" in schema:
        return f"list of {' and '.join(map(_type, schema['prefixItems']))}"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def _recorded() -> dict[str, Tree]:
    tree: dict[str, Tree] = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        path, _, value = line.partition(" = ")
        *sections, last = path.split("/")[1:]
        node: Tree = tree
        for section in sections:
            node = node.setdefault(section, {})
        if last not in ("exit", "more") and sections:
            node[last] = value
    return tree


def _collapsed(tree: Tree) -> Tree:
    """Return the tree with a single element for each list, and for each mapping whose keys are names from the data."""
    children = {key: _collapsed(each) if isinstance(each, dict) else each for key, each in tree.items()}
    if children and all(key.isdigit() for key in children):
        return {"[]": _merged(children.values())}
    branches = [set(each) for each in children.values() if isinstance(each, dict)]
    if len(branches) > 1 and len(branches) == len(children) and set.intersection(*branches):
        return {"NAME": _merged(children.values())}
    return children


def _merged(values: Iterable[Any]) -> Any:
    merged: Tree = {}
    for value in values:
        if not isinstance(value, dict):
            return value
        for key, each in value.items():
            merged[key] = _merged([merged[key], each]) if isinstance(merged.get(key), dict) else each
    return merged


def _leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, str]]:
    for key, each in tree.items():
        full = f"{path}{key}" if key == "[]" or not path else f"{path}.{key}"
        yield from _leaves(each, full) if isinstance(each, dict) else [(full, each)]
