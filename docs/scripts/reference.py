"""The reference of the two faces, `cpsched` and `cpsched_sim`, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import cpsched
import cpsched_sim

MOST_CHARS = 100
"""A longer signature has a parameter per line."""


def faces() -> str:
    """A heading for each package, and below it every name that it offers."""
    return "\n\n".join(part for face in (cpsched, cpsched_sim) for part in (f"## `{face.__name__}`", *_entries(face)))


def _entries(face: ModuleType) -> Iterator[str]:
    for name in sorted(face.__all__, key=str.casefold):
        thing, home = getattr(face, name), import_module(face._HOME_OF[name])  # noqa: SLF001
        yield "\n\n".join([f"### `{face.__name__}.{name}`", *_described(name, thing, home)])


def _described(name: str, thing: Any, home: ModuleType) -> Iterator[str]:
    if inspect.isclass(thing):
        if not (issubclass(thing, Exception) or inspect.isabstract(thing)):
            yield _code(name + _signature(thing))
        yield _markdown(inspect.getdoc(thing) or "")
        yield from _members(thing)
    elif inspect.isfunction(thing):
        yield _code(name + _signature(thing))
        yield _markdown(inspect.getdoc(thing) or "")
    else:
        homes = [home, *(m for key, m in list(sys.modules.items()) if key.startswith(f"{home.__name__}."))]
        yield _markdown(next(notes[name] for notes in map(_notes, homes) if name in notes))


def _members(thing: type) -> Iterator[str]:
    """Fields with a docstring of their own, properties and methods, each a line of a list or a block of it."""
    notes = _class_notes(thing)
    fields = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    lines = [f"- `{name}`: {_sentence(notes[name])}" for name in (*fields, *notes) if name in notes]
    lines = list(dict.fromkeys(line for line in lines if not line.startswith("- `_")))
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        plain = getattr(member, "__func__", member)
        if isinstance(member, property) or hasattr(member, "func"):
            lines.append(f"- `{name}`: {_sentence(inspect.getdoc(getattr(member, 'fget', None) or member.func) or '')}")
        elif inspect.isfunction(plain):
            lines.append(f"- `{name}{_signature(plain, bound=True)}`: {_sentence(inspect.getdoc(plain) or '')}")
    if lines:
        yield "\n".join(lines)


def _signature(thing: Any, bound: bool = False) -> str:
    """Parameters with defaults; types as the source writes them."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in found.parameters.values() if not p.name.startswith("_")]
    if bound:
        parameters = [p for p in parameters if p.name not in ("self", "cls")]
    parameters = [p.replace(default="...") if repr(p.default).startswith("<factory") else p for p in parameters]
    parameters = [p.replace(annotation=p.empty) for p in parameters]
    words = [str(p).replace("'...'", "...") for p in parameters]
    keyword_only = next((at for at, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    if keyword_only is not None:
        words.insert(keyword_only, "*")
    line = f"({', '.join(words)})"
    return line if len(line) < MOST_CHARS else "(\n    " + ",\n    ".join(words) + ",\n)"


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: examples and indented code as blocks that are not run."""
    blocks: list[str] = []
    for block in re.split(r"\n\n+", docstring):
        if block.startswith(">>>") or (block.startswith("    ") and not block.lstrip().startswith("-")):
            blocks.append(_code(textwrap.dedent(block)))
        else:
            blocks.append(re.sub(r"([^\n:])\n- ", r"\1\n- ", re.sub(r":\n- ", ":\n\n- ", block)))
    return "\n\n".join(blocks)


def _sentence(docstring: str) -> str:
    """The first paragraph in one line."""
    return " ".join(docstring.split("\n\n")[0].split())


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


@cache
def _notes(module: ModuleType) -> dict[str, str]:
    """Name -> the docstring below its assignment in a module."""
    return _noted(ast.parse(inspect.getsource(module)).body)


def _class_notes(thing: type) -> dict[str, str]:
    """The same for the fields of a class, its own only."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    return _noted(tree.body) if isinstance(tree, ast.ClassDef) else {}


def _noted(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for statement, after in pairwise(body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(said, str):
            found[target.id] = inspect.cleandoc(said)
    return found
