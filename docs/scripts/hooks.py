"""A hook for mkdocs.yml that adds the pages that are not committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs.scripts import api, commands, json_keys, metrics, policies, settings

ROOT = Path(__file__).resolve().parents[2]


def changelog() -> str:
    """Return the changelog with links adapted to the site."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def tutorial() -> str:
    """Return the notebook as a page."""
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for text, kind in texts)


PAGES: dict[str, Callable[[], str]] = {
    "reference-settings.md": settings.page,
    "reference-metrics.md": metrics.page,
    "reference-commands.md": commands.page,
    "reference-json.md": json_keys.page,
    "reference-api.md": api.page,
    "reference-dispatchers.md": policies.page,
    "changelog.md": changelog,
    "tutorial.md": tutorial,
}
"""For each page's file name, the function that returns its Markdown."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each page to the site's files."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files
