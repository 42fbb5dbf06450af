"""How many claims of each paper have which verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from docs.scripts.markdown import table
from docs.scripts.papers import cp19, debs24, mod17, pcp20
from docs.scripts.papers.claims import VERDICTS

PAPERS: dict[str, Callable[[], list[str]]] = {
    "[cp19](studies/cp19.md), tables, text, figures 1 to 4": cp19.verdicts,
    "[pcp20](studies/pcp20.md), tables, text, figures 4 to 7": pcp20.verdicts,
    "[mod17](studies/mod17.md), text, figures 1 to 5": mod17.verdicts,
    "[debs24](studies/debs24.md), table 2": debs24.verdicts_of_table,
    "[debs24](studies/debs24.md), table 1, text, figures 2 to 7": debs24.verdicts,
}
"""Paper and part -> the function that gives its verdicts."""


def counts() -> str:
    """A row for each paper."""
    rows = []
    for name, verdicts in PAPERS.items():
        found = Counter(verdicts())
        rows.append((name, *(found[each] or "" for each in VERDICTS)))
    return table(("paper", *VERDICTS), rows)
