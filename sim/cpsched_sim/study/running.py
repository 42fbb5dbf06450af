"""Runs the cases of a study that are not there yet: in processes of this machine, or on an engine such as Dask."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from typing_extensions import override

from cpsched_sim.errors import SimError, Unusable
from cpsched_sim.files import sha256_of
from cpsched_sim.patience import LIMIT_S, patience
from cpsched_sim.processes import Died, side_by_side
from cpsched_sim.study.campaign import Campaign, Case, campaign_of, read_campaign
from cpsched_sim.study.deciding import CaseOutcome, bound_memory, decide, failed, limited
from cpsched_sim.study.store import Before, KeptResult, Store

Task = Mapping[str, Any]
Heard = Callable[[int, object], bool]
SHARE_EVERY = 0.01


class Engine(Protocol):
    """What decides tasks somewhere. It tells `heard` a `CaseOutcome`, a share (float), or `Died`, as processes do."""

    def __call__(self, tasks: Mapping[int, Task], limit_s: float, heard: Heard, looked: Callable[[], None]) -> None:
        """Decide all of them. Any exception, Ctrl-C included, ends what is under way."""
        ...


@dataclass(frozen=True, slots=True)
class Processes(Engine):
    """The engine that is always there: so many processes of this machine, each for one case."""

    count: int = 2
    patience_s: float = LIMIT_S

    @override
    def __call__(self, tasks: Mapping[int, Task], limit_s: float, heard: Heard, looked: Callable[[], None]) -> None:
        given = {at: (task, self.patience_s) for at, task in tasks.items()}
        side_by_side(_work, given, self.count, heard, looked, limit_s)


def _work(task: Task, patience_s: float, pipe: Connection) -> None:
    """The work of one process. What a plug-in prints goes to standard error: standard output is the command's."""
    os.dup2(2, 1)
    told = [0.0]

    def share(done: int, total: int) -> None:
        if done / max(1, total) >= told[0] + SHARE_EVERY:
            told[0] = done / max(1, total)
            pipe.send(min(0.999, told[0]))

    pipe.send(decided(task, patience_s, share))


def decided(task: Task, patience_s: float, share: Callable[[int, int], None] = lambda done, total: None) -> CaseOutcome:
    """Decide a case within its bound of memory; a plug-in that hangs ends as a failed case."""
    bound_memory(task["memory_mib"])

    def patient(task: Task) -> CaseOutcome:
        with patience(patience_s) as limit:
            outcome = decide(task, limit.and_tell(share))
        path = next((path for path, digest in task["read"].items() if _digest(path) != digest), None)
        why = f"{path}: has changed since the study was read"
        return outcome if path is None else CaseOutcome(failed(why), outcome.made)

    return _caught(patient, task)


def _digest(path: str) -> str:
    try:
        return sha256_of(Path(path))
    except SimError:
        return "gone"


def _caught(work: Callable[[Task], CaseOutcome], task: Task) -> CaseOutcome:
    from cpsched_sim.errors import NoProgress

    try:
        return work(task)
    except NoProgress as error:
        return CaseOutcome(failed(str(error)), {"wall_s": 0.0})


@dataclass(slots=True)
class TimeEstimate:
    """How long cases take, by what cases of before took: the same dispatcher on the same trace, else the dispatcher."""

    costs: list[dict[str, Any]] = field(default_factory=list)

    def wall_s(self, case: Case) -> float | None:
        """Seconds; None where no case like it has ever run here."""
        by = case.labels
        for axes in (("trace", "load", "window", "dispatcher", "predictor"), ("trace", "load", "window", "dispatcher"),
                     ("trace", "dispatcher"), ("dispatcher",), ()):  # fmt: skip
            alike = [cost["wall_s"] for cost in self.costs if all(cost.get(axis) == by[axis] for axis in axes)]
            if alike:
                return fmean(alike)
        return None

    def all_s(self, cases: list[Case], processes: int) -> float | None:
        """Of all of them, side by side; None where nothing is known."""
        each = [self.wall_s(case) for case in cases]
        known = [one for one in each if one is not None]
        return len(each) * fmean(known) / max(1, min(processes, len(each))) if known else 0.0 if not each else None


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far a study is."""

    done: float
    """Cases, parts included."""
    cases: int
    left_s: float | None
    """None while nothing has ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """A study and its results; a case that was not reached has none."""

    campaign: Campaign
    kept: Mapping[str, KeptResult]
    """By digest."""
    folder: Path

    def rows(self) -> list[dict[str, Any]]:
        """A flat row for each case of the study: labels, what came of it, figures, what it took."""
        return [row_of(case, self.kept[case.digest]) for case in self.campaign.cases if case.digest in self.kept]

    def to_frame(self) -> Any:
        """The rows as a pandas frame. Raises `Unusable` without pandas."""
        from cpsched_sim import frames

        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        return frames.of_lines([names, *([row.get(name) for name in names] for row in rows)])


def row_of(case: Case, kept: KeptResult) -> dict[str, Any]:
    """One case as a flat row."""
    result, made = kept.result, kept.made
    decision = {f"decision_{name}": value for name, value in (made.get("decision") or {}).items()}
    versions = {f"version_{name}": value for name, value in (made.get("versions") or {}).items()}
    return {
        **case.labels, "digest": case.digest, "outcome": result["outcome"], "why": result["why"],
        **{name: value for name, value in (result.get("figures") or {}).items() if isinstance(value, int | float)},
        **{name: result.get(name) for name in ("left_waiting", "rounds", "violations", "schedule_sha256")},
        "cpu_s": made.get("cpu_s"), "wall_s": made.get("wall_s"), "share": made.get("share"), **decision, **versions,
        "machine": made.get("machine"), "machine_load": made.get("load"), "date": made.get("date"),
        "result_sha256": made.get("result_sha256"),
    }  # fmt: skip


def decision_ms(cpu_s: float | None, rounds: int | None) -> float | None:
    """CPU time of a replay by its rounds, in ms; None where one of them is not known, or 0."""
    return 1000 * cpu_s / rounds if cpu_s and rounds else None


def run_cases(
    campaign: Campaign,
    store: Store,
    engine: Engine,
    again: bool = False,
    told: Callable[[StudyProgress], None] | None = None,
    before: Before | None = None,
) -> Results:
    """Decide what is not there yet, and keep each result at once. The folder must be `alone`.

    `before` is what `store` has, for whoever has looked already.

    Raises `Unusable` where a result cannot be written; everything of before stays, and the next call goes on.
    """
    done = dict((before if before is not None else store.before(campaign, again)).done)
    distinct = list(campaign.distinct.values())
    limits = campaign.words.limits
    open_ = {at: case for at, case in enumerate(distinct) if case.digest not in done}
    tasks = {at: {**case.task, "memory_mib": limits.memory_mib} for at, case in open_.items()}
    shares = dict.fromkeys(open_, 0.0)
    began_s = time.monotonic()

    def heard(at: int, message: object) -> bool:
        if isinstance(message, float):
            shares[at] = max(shares[at], message)
            return False
        if isinstance(message, Died):
            result = limited(minutes=limits.minutes) if message.late else failed(_death(message, limits.memory_mib))
            wall_s = message.wall_s if message.wall_s is not None else time.monotonic() - began_s
            message = CaseOutcome(result, {"wall_s": wall_s, "cpu_s": message.cpu_s, "share": shares[at]})
        assert isinstance(message, CaseOutcome)
        store.keep(open_[at], message)
        found = store.find(open_[at].digest)
        if found is None:
            raise Unusable(f"{store.path(open_[at].digest)}: cannot be read again")
        done[open_[at].digest] = found
        shares[at] = 1.0
        return True

    def looked() -> None:
        if told is not None:
            part, spent_s = sum(shares.values()), time.monotonic() - began_s
            left_s = spent_s * (len(shares) - part) / part if part > 0 else None
            told(StudyProgress(len(distinct) - len(open_) + part, len(distinct), left_s))

    looked()
    if tasks:
        engine(tasks, 60 * limits.minutes if limits.minutes is not None else float("inf"), heard, looked)
    return Results(campaign, done, store.folder)


def _death(died: Died, memory_mib: int | None) -> str:
    return f"{died}" + (f" (it may have {memory_mib:,} MiB)" if memory_mib is not None else "")


def run_study(
    study: str | PathLike[str] | Mapping[str, Any],
    out: str | PathLike[str],
    *,
    processes: int = 2,
    on: str | None = None,
    again: bool = False,
) -> Results:
    """Run a study into the folder `out`: what is there already is not run again.

    `study` is the path of its file, or the same words as a mapping. `on` names an engine (see `engine_of`); without
    one, so many processes of this machine do it. `to_frame()` of what comes back is a row for each case.
    Raises `InvalidFile` with file, line and field; `Unusable`.
    """
    from cpsched_sim.study.engines import engine_of
    from cpsched_sim.study.writing import write_all

    campaign = campaign_of(study) if isinstance(study, Mapping) else read_campaign(study)
    store = Store(Path(out))
    with store.alone():
        store.write_study(campaign)
        results = run_cases(campaign, store, engine_of(on, processes), again)
        write_all(results)
    return results
