"""The table of studies: the question and the verdict of each, from its own page, in the order of the navigation."""

from __future__ import annotations

import re
from pathlib import Path

from docs.scripts.markdown import table

ROOT = Path(__file__).resolve().parents[2]
ROWS = ("question", "command", "measured", "verdict")
"""What stands on top of each study."""


def names() -> list[str]:
    """The studies that the navigation lists, without the index."""
    listed = re.findall(r"- studies/([\w-]+)\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [name for name in listed if name != "index"]


def head(name: str) -> dict[str, str]:
    """Title and rows of a study: `title`, and each of `ROWS` that it has."""
    text = (ROOT / "docs" / "studies" / f"{name}.md").read_text(encoding="utf-8")
    rows = dict(re.findall(rf"^\| ({'|'.join(ROWS)}) \| (.+) \|$", text, re.MULTILINE))
    return {"title": text.splitlines()[0].removeprefix("# "), **rows}


def verdicts() -> str:
    """Question and verdict of each study, with a link."""
    found = [(name, head(name)) for name in names()]
    return table(("study", "verdict"), [(f"[{about['title']}]({name}.md)", about["verdict"]) for name, about in found])
