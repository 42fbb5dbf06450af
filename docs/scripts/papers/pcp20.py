"""Pictures and table of pcp20: `studies/pcp20`."""

from __future__ import annotations

import json

import numpy as np

from cpsched.metrics import FloatArray
from docs.scripts.papers.charts import lines
from docs.scripts.papers.claims import judged, page, rows_of
from docs.scripts.papers.cp19 import means
from docs.scripts.papers.spreads import STUDIES

STUDY = STUDIES / "pcp20"
FILE = STUDY / "instances.json"
"""Rounds recorded in November 2026 and decided by PCP'19 and PCP'20: number, variables and CPU ms of both."""
DISPATCHERS = ("HCP'19", "PCP'19", "PCP'20", "PRB")
VARIABLES, TIMES = (1, 2), (3, 4)
"""Places of PCP'19 and PCP'20 in a row of the instances."""
SMALL, LEAST = 0.1, 0.01
"""The largest ratio of variables, and the smallest of times, of pcp20."""


def table() -> str:
    """Every claim with its verdict."""
    return page(STUDY, facts())


def verdicts() -> list[str]:
    """The verdict of each claim."""
    return [claim.verdict for claim in judged(STUDY, facts())]


def facts() -> dict[str, str]:
    """Times of decisions by trace, and ratios on the same instances: what the sentences of `paper.yaml` fill in."""
    found: dict[str, list[float]] = {}
    for row in rows_of(STUDY):
        if row["dispatcher"] != "PRB":
            found.setdefault(row["trace"], []).append(row["decision_ms"])
    told = {name: f"{min(each):.2f} to {max(each):.2f}" for name, each in found.items()}
    variables, times = (np.concatenate(list(ratios(pair).values())) for pair in (VARIABLES, TIMES))
    inside = int(((times >= LEAST) & (times <= 1)).sum())
    sums = ", ".join(f"{share:.2f} ({letter})" for letter, share in of_all(TIMES).items())
    return {
        **told,
        "variables": f"{np.median(variables):.2f} times in the median of {len(variables)} contended rounds, and below "
        f"{SMALL:g} in {int((variables < SMALL).sum())}",
        "times": f"in {inside} of {len(times)} contended rounds; of the time of all rounds together {sums}",
    }


def ratios(pair: tuple[int, int]) -> dict[str, FloatArray]:
    """By the paper's letter for the estimates, PCP'20 over PCP'19 in each recorded instance, smallest first."""
    return {letter: np.sort(table[:, pair[1]] / table[:, pair[0]]) for letter, table in _tables().items()}


def of_all(pair: tuple[int, int]) -> dict[str, float]:
    """By letter, PCP'20 over PCP'19 of all recorded instances together."""
    sums = {letter: table.sum(axis=0) for letter, table in _tables().items()}
    return {letter: float(each[pair[1]] / each[pair[0]]) for letter, each in sums.items()}


def _tables() -> dict[str, FloatArray]:
    """The rows of the recorded instances by letter."""
    told = json.loads(FILE.read_text(encoding="utf-8"))
    return {letter: np.array(each["rows"]) for letter, each in told.items()}


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


def figure6() -> str:
    """Variables of PCP'20 over those of PCP'19."""
    return _ratios(VARIABLES, "Variables on the same instances (pcp20 figure 6)", "variables of PCP'20 over PCP'19")


def figure7() -> str:
    """CPU time of PCP'20 over that of PCP'19."""
    return _ratios(TIMES, "Times on the same instances (pcp20 figure 7)", "CPU time of PCP'20 over PCP'19")


def _ratios(pair: tuple[int, int], title: str, across: str) -> str:
    """The share of instances with at most that ratio."""
    series = {
        letter: [(float(ratio), (at + 1) / len(each)) for at, ratio in enumerate(each)]
        for letter, each in ratios(pair).items()
    }
    return lines(title, across, "share of instances", series, log=True)
