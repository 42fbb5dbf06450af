"""Pictures and table of pcp20: `studies/pcp20`."""

from __future__ import annotations

from docs.scripts.papers.claims import judged, page, rows_of
from docs.scripts.papers.cp19 import means
from docs.scripts.papers.spreads import STUDIES

STUDY = STUDIES / "pcp20"
DISPATCHERS = ("HCP'19", "PCP'19", "PCP'20")


def table() -> str:
    """Every claim with its verdict."""
    return page(STUDY, facts())


def verdicts() -> list[str]:
    """The verdict of each claim."""
    return [claim.verdict for claim in judged(STUDY, facts())]


def facts() -> dict[str, str]:
    """Times of decisions by trace, which the sentences of `paper.yaml` fill in."""
    found: dict[str, list[float]] = {}
    for row in rows_of(STUDY):
        found.setdefault(row["trace"], []).append(row["decision_ms"])
    return {name: f"{min(each):.2f} to {max(each):.2f}" for name, each in found.items()}


def figure4() -> str:
    """Slowdown on KIT."""
    return means(STUDY, "mean_slowdown", "Slowdown on KIT ForHLR II (pcp20 figure 4)", DISPATCHERS, "KIT")


def figure4_waits() -> str:
    """Wait on KIT."""
    return means(STUDY, "mean_wait_s", "Wait on KIT ForHLR II (pcp20 figure 4)", DISPATCHERS, "KIT")


def figure5() -> str:
    """Slowdown on Eurora."""
    return means(STUDY, "mean_slowdown", "Slowdown on a made-up Eurora (pcp20 figure 5)", DISPATCHERS, "Eurora")


def figure5_waits() -> str:
    """Wait on Eurora."""
    return means(STUDY, "mean_wait_s", "Wait on a made-up Eurora (pcp20 figure 5)", DISPATCHERS, "Eurora")
