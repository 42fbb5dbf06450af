"""Functions that format the parts of generated Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

UNITS = {
    "s": "s", "seconds": "s", "min": "min", "h": "h", "days": "days", "mib": "MiB", "bytes": "bytes", "w": "W",
    "watts": "W", "ratio": "1", "jobs": "jobs", "users": "users",
}  # fmt: skip
"""The unit for the last word of a name."""


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table. Bars in cells are escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def code(text: object) -> str:
    """Return `text` in code style, or an empty text unchanged."""
    return f"`{text}`" if f"{text}" else ""


def codes(texts: Iterable[object]) -> str:
    """Return the texts in code style, separated by commas."""
    return ", ".join(map(code, texts))


def document(title: str, *parts: str) -> str:
    """Return a page with a title and the non-empty parts."""
    return "\n\n".join([f"# {title}", *filter(None, parts)]) + "\n"


def unit_of(name: str) -> str:
    """Return the unit at the end of a setting's or metric's name, or ""."""
    return UNITS.get(re.split(r"[._]", name.removesuffix("_total"))[-1], "")


def _cell(value: object) -> str:
    """Return the value as one line, with bars and tags outside code escaped."""
    parts = " ".join(str(value).split()).split("`")
    return "`".join(part if at % 2 else part.replace("|", "\\|").replace("<", "&lt;") for at, part in enumerate(parts))
