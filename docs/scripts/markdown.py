"""Parts of a generated page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

UNITS = {
    "s": "s", "seconds": "s", "min": "min", "h": "h", "days": "days", "mib": "MiB", "bytes": "bytes", "w": "W",
    "watts": "W", "ratio": "1", "jobs": "jobs", "users": "users",
}  # fmt: skip
"""Last word of a name -> the unit that it stands for."""


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; bars in cells are escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def code(text: object) -> str:
    """Return `text` in code style; an empty text stays empty."""
    return f"`{text}`" if f"{text}" else ""


def codes(texts: Iterable[object]) -> str:
    """Return the texts in code style, separated by commas."""
    return ", ".join(map(code, texts))


def document(title: str, *parts: str) -> str:
    """Return a page."""
    return "\n\n".join([f"# {title}", *filter(None, parts)]) + "\n"


def unit_of(name: str) -> str:
    """Return the unit that the name of a setting or a metric ends in; empty if there is none."""
    return UNITS.get(re.split(r"[._]", name.removesuffix("_total"))[-1], "")


def _cell(value: object) -> str:
    """Return one line in which bars and tags outside of code are escaped."""
    parts = " ".join(str(value).split()).split("`")
    return "`".join(part if at % 2 else part.replace("|", "\\|").replace("<", "&lt;") for at, part in enumerate(parts))
