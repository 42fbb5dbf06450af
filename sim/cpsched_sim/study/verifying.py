"""Decides a sample of a study again, and says which results are not what they were.

- Every row of the tables must say what the file of its case says, and that file must have the digest it was kept with.
- A sample of the cases is decided again; inputs and figures must be the same, byte for byte.
- A case whose inputs are others today (code that changed, a trace that changed) cannot be decided again: it is told.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cpsched_sim.errors import Unusable
from cpsched_sim.processes import Died
from cpsched_sim.study import parquet
from cpsched_sim.study.campaign import Campaign, Case
from cpsched_sim.study.deciding import CaseOutcome
from cpsched_sim.study.running import Engine
from cpsched_sim.study.store import CASES, LINES, Store, check_form, encoded
from cpsched_sim.study.writing import TABLE


@dataclass(slots=True)
class Verification:
    """What verifying found; `differs` has a sentence for each result that is not what it should be."""

    decided: int = 0
    same: int = 0
    read: int = 0
    differs: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    """Labels of cases whose inputs are others today."""
    by_clock: int = 0
    """Cases of the sample that a clock ends, which nobody can decide again."""

    @property
    def fine(self) -> bool:
        """Whether nothing differs."""
        return not self.differs


def verify(
    campaign: Campaign,
    source: Path,
    engine: Engine,
    sample: int = 5,
    seed: int = 0,
    looked: Callable[[], None] = lambda: None,
) -> Verification:
    """Hold the results in `source`, a folder or a file of lines, against themselves and against a sample decided anew.

    Raises `Unusable` where there are no results.
    """
    found, labels = Verification(), _labels_of(campaign)
    kept = _of_folder(source, found, labels) if source.is_dir() else read_lines(source, found, labels)
    if not kept:
        raise Unusable(f"{source}: has no results")
    found.read = len(kept)
    distinct = campaign.distinct
    ended = [digest for digest, content in kept.items() if content["result"]["outcome"] == "ended"]
    found.other = [_told(kept[digest]) for digest in ended if digest not in distinct]
    known = sorted(digest for digest in ended if digest in distinct)
    chosen = random.Random(seed).sample(known, min(sample, len(known)))
    found.by_clock = sum(distinct[digest].by_clock for digest in chosen)
    cases = [distinct[digest] for digest in chosen if not distinct[digest].by_clock]
    memory = campaign.words.limits.memory_mib

    def heard(at: int, message: object) -> bool:
        if isinstance(message, float):
            return False
        found.decided += 1
        case = cases[at]
        if isinstance(message, Died):
            found.differs.append(f"{_label(case)}: {message}")
        elif isinstance(message, CaseOutcome):
            before, now = kept[case.digest]["result"], json.loads(json.dumps(message.result))
            if encoded(before) == encoded(now):
                found.same += 1
            else:
                found.differs.append(f"{_label(case)}: decided again: {_first_difference(before, now)}")
        return True

    engine({at: {**case.task, "memory_mib": memory} for at, case in enumerate(cases)}, float("inf"), heard, looked)
    return found


Labels = Mapping[str, Sequence[Mapping[str, Any]]]
"""By digest the labels of each case of a study: seeds of what draws nothing share a digest."""


def _labels_of(campaign: Campaign) -> Labels:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for case in campaign.cases:
        found.setdefault(case.digest, []).append(case.labels)
    return found


def _of_folder(folder: Path, found: Verification, labels: Labels) -> dict[str, dict[str, Any]]:
    """The results of a folder by digest; what its files say of themselves is held against them."""
    kept: dict[str, dict[str, Any]] = {}
    store, damaged = Store(folder), set[str]()
    for path in sorted((folder / CASES).glob("*.json")):
        digest = path.stem
        whole = store.find(digest)
        if whole is None:
            found.differs.append(f"{path}: is damaged")
            damaged.add(digest)
            continue
        kept[digest] = {"inputs": whole.inputs, "result": whole.result, "labels": whole.made.get("labels", {})}
        _check_digest(str(path), digest, kept[digest], whole.made, found)
        if path.read_bytes() != encoded({"inputs": whole.inputs, "result": whole.result}):
            found.differs.append(f"{path}: is not written as studies write it")
    if (folder / LINES).exists():
        for digest, line in read_lines(folder / LINES, found, labels).items():
            if digest in kept and encoded(line["result"]) != encoded(kept[digest]["result"]):
                difference = _first_difference(kept[digest]["result"], line["result"])
                found.differs.append(f"{folder / LINES}: {_told(line)}: {difference}")
    if (folder / TABLE).exists() and parquet.is_there():
        for row in parquet.rows_of(folder / TABLE):
            if row.get("digest") not in damaged:
                found.differs += [f"{folder / TABLE}: {why}" for why in _wrong_in_row(row, kept, labels)[:1]]
    return kept


def _wrong_in_row(row: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]], labels: Labels) -> list[str]:
    """What a row of the table says otherwise than the file of its case, a sentence each."""
    digest = str(row.get("digest"))
    if digest not in kept:
        return [f"{digest}: there is no such case"]
    result = kept[digest]["result"]
    told = {name: result.get(name) for name in ("outcome", "why", "rounds", "schedule_sha256")}
    told |= result.get("figures") or {}
    wrong = [name for name, value in told.items() if name in row and row[name] != value]
    found = [f"{digest}: {name} is {row[name]}, not {told[name]}" for name in wrong]
    return found if _is_labelled(row, digest, labels) else [*found, f"{digest}: its labels are those of no such case"]


def _is_labelled(row: Mapping[str, Any], digest: str, labels: Labels) -> bool:
    """Whether a row has the labels of a case of that digest, as far as it has labels; True for other studies' cases."""
    known = labels.get(digest)
    return known is None or any(all(row.get(name, value) == value for name, value in each.items()) for each in known)


def read_lines(path: Path, found: Verification, labels: Labels = MappingProxyType({})) -> dict[str, dict[str, Any]]:
    """The results of a file of lines by digest; `found` is told of those that changed, or stand under other labels.

    Raises `Unusable` where a line is no result. Several lines of a digest must say the same.
    """
    kept: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path}: {error}") from error
    for number, text in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        where = f"{path}:{number}"
        try:
            line = json.loads(text)
            digest = line["digest"]
            check_form(line["inputs"], line["result"], line["made"])
            if not isinstance(line["labels"], Mapping):
                raise ValueError("labels must be a mapping")
            before = kept.setdefault(digest, line)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise Unusable(f"{where}: is no line of results: {error}") from error
        _check_digest(where, digest, line, line["made"], found)
        if encoded(before["result"]) != encoded(line["result"]):
            found.differs.append(f"{where}: another line of the same case says something else")
        if not _is_labelled(line["labels"], digest, labels):
            found.differs.append(f"{where}: its labels are those of no such case")
    return kept


def _check_digest(
    where: str, digest: str, content: Mapping[str, Any], made: Mapping[str, Any], found: Verification
) -> None:
    inputs, result = content["inputs"], content["result"]
    if hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32] != digest:
        found.differs.append(f"{where}: its name is not the digest of its inputs")
    if made.get("result_sha256") != hashlib.sha256(encoded({"inputs": inputs, "result": result})).hexdigest():
        found.differs.append(f"{where}: has changed since it was kept")


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first figure in which two results differ."""
    one, other = ({**result, **(result.get("figures") or {})} for result in (before, now))
    for name in sorted({*one, *other} - {"figures"}):
        if one.get(name) != other.get(name):
            return f"{name} is {one.get(name)!r}, should be {other.get(name)!r}"
    return "is another result"


def _told(content: Mapping[str, Any]) -> str:
    labels = content.get("labels", {})
    return f"{labels.get('trace', '?')}, {labels.get('policy', '?')}, seed {labels.get('seed', '?')}"


def _label(case: Case) -> str:
    return _told({"labels": case.labels})
