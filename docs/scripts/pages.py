"""Which part of which page comes from which function, and what differs from what is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from docs.scripts import (
    benchmark,
    catalogue,
    examples,
    exporter,
    family,
    figures,
    floor,
    plans,
    reasons,
    reference,
    releases,
    settings,
    studies,
)
from docs.scripts.papers import cp19, debs24, mod17, overview, pcp20
from docs.scripts.papers.shown import PICTURES as PICTURES_OF_PAPERS

DOCS = Path(__file__).resolve().parents[1]

PARTS: dict[str, Callable[[], str]] = {
    "dispatchers": catalogue.dispatchers,
    "orders": catalogue.orders,
    "objectives": catalogue.objectives,
    "predictors": catalogue.predictors,
    "instance": plans.instance_table,
    "settings": settings.tables,
    "family": family.members,
    "family words": family.words,
    "figures": figures.figures,
    "exporter": exporter.table_text,
    "benchmark": benchmark.table,
    "reference": reference.faces,
    "reasons": reasons.tables,
    "releases": releases.tested,
    "studies": studies.verdicts,
    "cp19": cp19.table,
    "debs24": debs24.table,
    "debs24 figures": debs24.claims,
    "mod17": mod17.table,
    "papers": overview.counts,
    "pcp20": pcp20.table,
    **{f"plan {name}": (lambda name=name: plans.example(name)) for name in plans.SHOWN},
}
"""Name of a part -> the function that writes it, as Markdown."""

PICTURES: dict[str, Callable[[], str]] = {
    "kernels": floor.picture,
    **{f"plan-{name}": (lambda name=name: plans.picture(name)) for name in plans.SHOWN},
    **PICTURES_OF_PAPERS,
}
"""Name of a picture -> the function that draws it, as SVG."""

PART = re.compile(r"(<!-- begin generated: ([\w +-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)


def outdated() -> Iterator[tuple[Path, str]]:
    """Every file of the site whose generated content differs from what is written, with its new content."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        written = PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", text)
        if written != text:
            yield path, written
    for name, draw in PICTURES.items():
        path, drawn = DOCS / "pictures" / f"{name}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            yield path, drawn
    for path, write in examples.FILES.items():
        if path.read_text(encoding="utf-8") != (text := write()):
            yield path, text
