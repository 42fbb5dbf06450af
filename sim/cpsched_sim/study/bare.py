"""The source of a module without what decides nothing: its docstrings, its comments and its blank lines.

Only whole lines are left out, so a comment behind code stays. The same bytes come of the same source on every release
of Python.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import decode_source
from pathlib import Path


def bare(path: Path) -> bytes:
    """What is left of a file. Raises `SyntaxError`, `OSError`."""
    return _bare(path, path.stat().st_mtime_ns)


@cache
def _bare(path: Path, _: int) -> bytes:
    """Read the file again after each change."""
    text = decode_source(path.read_bytes())
    tree, lines = ast.parse(text), text.split("\n")
    sayings = set(_sayings(tree, lines))
    inside = set(_inside_strings(tree))
    found = [
        line
        for number, line in enumerate(lines, 1)
        if number not in sayings
        and (number in inside or _is_code(line) or (number > 1 and lines[number - 2].endswith("\\")))
    ]
    return "\n".join(found).encode()


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith("#") and bool(line.strip())


def _sayings(tree: ast.Module, lines: list[str]) -> Iterator[int]:
    """The lines of docstrings, and of other strings that stand by themselves, where nothing else is on these lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            end = node.end_lineno or node.lineno
            before = lines[node.lineno - 1].encode()[: node.col_offset]
            behind = lines[end - 1].encode()[node.end_col_offset :]
            if not before.strip() and not behind.strip():
                yield from range(node.lineno, end + 1)


def _inside_strings(tree: ast.Module) -> Iterator[int]:
    """The lines that begin within a string; what looks like a comment there is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            yield from range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
