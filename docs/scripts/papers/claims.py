"""What a paper says, beside what our results say: a verdict for each number, sentence and figure.

Verdicts: *reproduced*, a number within a point of percent; *same order*, a number within ten points or an ordering
that holds; *differs*; *cannot be*, where something is missing; *did not end*, within what it was given; *not measured*.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from cpsched_sim.study.policy_ranking import Ratio, compared
from cpsched_sim.study.study_results import decision_ms
from docs.scripts.markdown import table
from docs.scripts.papers.spreads import ALL, SPREAD

DID_NOT_END = "did not end"
VERDICTS = ("reproduced", "same order", "differs", "cannot be", DID_NOT_END, "not measured")
WITHIN, NEAR = 1.0, 10.0
"""Points of percent: published values are rounded to whole ones."""
SPREADS = ("slowdown", "wait_s", "queue")
"""Figures of which a spread is landed; others are those of results."""
ALIKE = 0.1
"""Two figures are alike whose ratio is no farther from 1."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a paper says in one place, what was found here, and the verdict."""

    item: str
    says: str
    found: str
    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.item}: {self.verdict}: must be one of {', '.join(VERDICTS)}")


def verdict_of(published: float | None, ours: float | None) -> str:
    """Reproduced within a point, same order within ten, else differs; what was not run is not measured."""
    if published is None:
        return "cannot be"
    if ours is None:
        return "not measured"
    apart = abs(published - ours)
    return "reproduced" if apart <= WITHIN else "same order" if apart <= NEAR else "differs"


def judged(study: Path, facts: Mapping[str, Any] = MappingProxyType({})) -> list[Judged]:
    """Every claim of `paper.yaml` with its verdict; `facts` fill in what its sentences name in braces."""
    paper = yaml.safe_load((study / "paper.yaml").read_text(encoding="utf-8"))
    rows = rows_of(study)
    return [_judged(words, rows, facts) for words in paper["claims"]]


def counts(claims: Sequence[Judged]) -> str:
    """How many have which verdict, in a sentence."""
    found = Counter(claim.verdict for claim in claims)
    return f"{len(claims)} claims: {', '.join(f'{found[each]} {each}' for each in VERDICTS if found[each])}."


def page(study: Path, facts: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The counts, and a table with a row for each claim."""
    claims = judged(study, facts)
    rows = [(claim.item, claim.says, claim.found, claim.verdict) for claim in claims]
    return f"{counts(claims)}\n\n{table(('where', 'the paper says', 'here', 'verdict'), rows)}"


def _judged(words: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> Judged:
    """A claim: with a verdict of its own, an ordering (`less` before `than`, or a `chain`), or figures `alike`.

    `no_more` is an ordering that holds where they are alike, too.
    """
    item, says = words["item"], words["says"]
    reason = f". {words['reason'].format_map(facts)}" if "reason" in words else ""
    if "verdict" in words:
        return Judged(item, says, words["here"].format_map(facts), words["verdict"])
    name, trace = words["figure"], words.get("trace")
    name = f"{name} {words.get('of', ALL)} {words.get('by', 'mean')}" if name in SPREADS else name
    rows = [row for row in rows if trace in (None, row["trace"])]
    found = {pair: compared(rows, name, *pair) for pair in _pairs(words)}
    known = {pair: ratio for pair, ratio in found.items() if ratio is not None}
    if len(known) < len(found):
        missing = next(pair for pair in found if pair not in known)
        return Judged(item, says, f"{' and '.join(missing)} have no figures to compare{reason}", "not measured")
    if "alike" in words:
        ((pair, ratio),) = known.items()
        return Judged(item, says, _told(pair, ratio) + reason, "same order" if _alike(ratio) else "differs")
    wrong = {
        pair: ratio for pair, ratio in known.items() if not (ratio.ratio < 1 or ("no_more" in words and _alike(ratio)))
    }
    nearest = max(known.items(), key=lambda each: each[1].ratio)
    text = "; ".join(_told(pair, ratio) for pair, ratio in (wrong or dict([nearest])).items())
    if len(known) > 1:
        right = f"{len(known) - len(wrong)} of {len(known)} pairs"
        text = f"{right}; not: {text}" if wrong else f"{right}; the nearest: {text}"
    return Judged(item, says, text + reason, "differs" if wrong else "same order")


def _pairs(words: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who is compared with whom."""
    if "chain" in words:
        return list(zip(words["chain"], words["chain"][1:], strict=False))
    if "than" in words:
        return list(product(words.get("less") or words["no_more"], words["than"]))
    one, other = words["alike"]
    return [(one, other)]


def _alike(ratio: Ratio) -> bool:
    return 1 - ALIKE <= ratio.ratio <= 1 + ALIKE


def _told(pair: Sequence[str], ratio: Ratio) -> str:
    """The ratio of a pair with its interval; what the interval does not tell apart is said."""
    one, other = pair
    if ratio.low is None or ratio.high is None:
        return f"{one} {ratio.ratio:.4g} times {other} (one workload: no interval)"
    apart = "" if ratio.is_significant else ", not told apart"
    return f"{one} {ratio.ratio:.4g} times {other} ({ratio.low:.2g} to {ratio.high:.2g}{apart})"


def rows_of(study: Path) -> list[dict[str, Any]]:
    """What is known of each landed case as a flat row: the figures of its replay, `decision_ms`, and its spreads.

    Spreads are named like `slowdown all mean` and `queue all median`.
    """
    found = {}
    for line in _lines(study / "results.jsonl"):
        labels, result, made = line["labels"], line["result"], line["made"]
        if result["outcome"] == "ended":
            row = {**labels, **result["figures"], "outcome": "ended", "digest": line["digest"]}
            row["decision_ms"] = decision_ms(made["cpu_s"], result["rounds"])
            found[labels["trace"], labels["policy"], labels["seed"]] = row
    for line in _lines(study / "spreads.jsonl"):
        if line["seed"] != ALL:
            row = found[line["trace"], line["policy"], line["seed"]]
            for name in SPREADS:
                for part, values in line[name].items():
                    row |= {f"{name} {part} {figure}": v for figure, v in zip(SPREAD, values, strict=True)}
    return list(found.values())


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a landed file; none where a study has no such file."""
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(text) for text in texts]


def pooled(study: Path, trace: str | None = None) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Policy -> figure -> class -> spread over all seeds, of one trace where a study has several."""
    return {
        line["policy"]: {name: line[name] for name in SPREADS}
        for line in _lines(study / "spreads.jsonl")
        if line["seed"] == ALL and trace in (None, line["trace"])
    }
