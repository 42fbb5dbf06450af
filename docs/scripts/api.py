"""The page of the public Python API. mkdocstrings renders each name that `cpsched` and `cpsched_sim` export."""

from __future__ import annotations

import cpsched
import cpsched_sim
from docs.scripts.markdown import document

INTRODUCTION = """\
These names are stable: the changelog lists every change to them. Everything else is internal. A name is
loaded when it is first used."""


def page() -> str:
    """Return the page, which contains a mkdocstrings directive for each name."""
    parts = []
    for package in (cpsched, cpsched_sim):
        parts.append(f"## `{package.__name__}`")
        for name in sorted(package.__all__, key=str.casefold):
            module = package._MODULE_BY_NAME[name]  # noqa: SLF001
            parts.append(f"::: {module}.{name}\n    options:\n      heading: {package.__name__}.{name}")
    return document("Python API", INTRODUCTION, *parts)
