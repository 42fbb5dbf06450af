"""Many replays of one trace, side by side: every dispatcher with every predictor, each in a process of its own.

A process of its own costs a second to start and buys that a combination that crashes, runs out of memory or raises
loses nothing but itself. Processes are spawned, so that no state of this one leaks into a study.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from cpsched.errors import CpschedError, UnknownName, require
from cpsched_sim.cluster.replay import Charge, Lane
from cpsched_sim.errors import SimError
from cpsched_sim.experiment import Setup, run, write_outcome
from cpsched_sim.workloads.load import load

FIGURES = ("bsld", "af", "awf", "p2sf", "mean_slowdown", "mean_wait_s", "utilization")
"""What is also given in percent of the baseline."""


@dataclass(frozen=True, slots=True)
class Study:
    """What all combinations share. Plain values: it travels to other processes."""

    trace: Path
    system: str | None = None
    max_jobs: int | None = None
    lenient: bool = False
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One combination: its summary (see `Outcome.summary`), or why there is none."""

    dispatcher: str
    predictor: str
    summary: Mapping[str, Any] | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """dispatcher/predictor."""
        return f"{self.dispatcher}/{self.predictor}"


def setups(
    dispatchers: Sequence[str],
    predictors: Sequence[str],
    settings: Mapping[str, str],
    options: Mapping[str, str],
    charge: Charge = None,
    lane: Lane = "ordinary",
) -> list[Setup]:
    """Every combination, each with the settings that it knows. Raises `UnknownName` for names that none knows."""
    found = []
    for dispatcher, predictor in product(dispatchers, predictors):
        known = Setup(dispatcher, predictor).known()
        mine = {name: text for name, text in settings.items() if name in known}
        asked = {name: text for name, text in options.items() if name in known}
        found.append(Setup(dispatcher, predictor, mine, asked, charge, lane))
        found[-1].policy(())
    require(bool(found), "--dispatchers, --predictors", "", "must name one each")
    for name in (*settings, *options):
        if not any(name in setup.settings or name in setup.options for setup in found):
            raise UnknownName("parameter of any of these", name, set().union(*(setup.known() for setup in found)))
    return found


Fractions = Callable[[float, int], None]
"""Called with (combinations done, parts included; combinations in all)."""


def compare(study: Study, chosen: Sequence[Setup], processes: int, progress: Fractions | None = None) -> list[Row]:
    """All combinations, at most so many at once, in the order given. Stopped by any exception, Ctrl-C included."""
    spawn = multiprocessing.get_context("spawn")
    waiting = list(enumerate(chosen))[::-1]
    running: dict[Connection, tuple[int, SpawnProcess]] = {}
    rows: dict[int, Row] = {}
    shares = [0.0] * len(chosen)
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index, setup = waiting.pop()
                ours, theirs = spawn.Pipe(duplex=False)
                process = spawn.Process(target=_replay_one, args=(study, setup, theirs), daemon=True)
                with _interrupts_held():
                    process.start()
                    running[ours] = index, process
                theirs.close()
            for pipe in wait(list(running), timeout=1.0):
                assert isinstance(pipe, Connection)
                index, process = running[pipe]
                message = _received(pipe, process, chosen[index])
                if isinstance(message, Row):
                    rows[index], shares[index] = message, 1.0
                    del running[pipe]
                    process.join()
                else:
                    shares[index] = message
            if progress is not None:
                progress(sum(shares), len(chosen))
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()
    return [rows[index] for index in sorted(rows)]


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is through; a process started in it never sees one, its parent ends it.

    The mask is for the process (masks are inherited), the handler for this one, whose other threads a signal may
    reach in spite of the mask. The resource tracker is started first because its start would lift the mask.
    """
    resource_tracker.ensure_running()
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if held:
            signal.raise_signal(signal.SIGINT)


def _received(pipe: Connection, process: SpawnProcess, setup: Setup) -> Row | float:
    """The row of a combination, or the share of its jobs that is done."""
    try:
        message: Row | float = pipe.recv()
        return message
    except EOFError:
        process.join()
        return Row(setup.dispatcher, setup.predictor, error=f"its process died with exit code {process.exitcode}")


def _replay_one(study: Study, setup: Setup, pipe: Connection) -> None:
    """The work of one process: share of jobs done, now and then, and the row at the end."""
    try:
        workload = load(study.trace, study.system, study.lenient, study.max_jobs)
        outcome = run(workload, setup, lambda done, total: pipe.send(done / total))
        if study.out is not None:
            write_outcome(outcome, study.out / f"{setup.dispatcher}-{setup.predictor}")
        pipe.send(Row(setup.dispatcher, setup.predictor, outcome.summary()))
    except (CpschedError, SimError) as error:
        pipe.send(Row(setup.dispatcher, setup.predictor, error=str(error)))
    except Exception as error:
        pipe.send(Row(setup.dispatcher, setup.predictor, error=f"{type(error).__name__}: {error}"))


def check_baseline(chosen: Sequence[Setup], baseline: str | None) -> None:
    """Raises `UnknownName` unless `baseline` is one of the dispatchers or dispatcher/predictor."""
    known = {name for s in chosen for name in (s.dispatcher, f"{s.dispatcher}/{s.predictor}")}
    if baseline is not None and baseline not in known:
        raise UnknownName("baseline", baseline, known)


def baselines(rows: Sequence[Row], baseline: str | None) -> dict[str, Row | None]:
    """Row name -> the row that it is measured by.

    A dispatcher measures each row with the row's own predictor; dispatcher/predictor measures all; without a
    baseline, the first row measures all.
    """
    by_name = {row.name: row for row in rows}
    if baseline is not None and baseline not in by_name:
        return {row.name: by_name.get(f"{baseline}/{row.predictor}") for row in rows}
    return dict.fromkeys(by_name, by_name[baseline or rows[0].name])


def percentages(row: Row, baseline: Row | None) -> dict[str, float]:
    """The figures of `row` in percent of the baseline's; empty where one of them failed."""
    if row.summary is None or baseline is None or baseline.summary is None:
        return {}
    return {name: 100 * row.summary[name] / baseline.summary[name] for name in FIGURES if baseline.summary[name]}


def as_json(rows: Sequence[Row], baselines: Mapping[str, Row | None]) -> dict[str, Any]:
    """The comparison as one object."""
    return {
        "results": [
            {
                "dispatcher": row.dispatcher,
                "predictor": row.predictor,
                "summary": row.summary,
                "percent": percentages(row, baselines[row.name]),
                "error": row.error or None,
            }
            for row in rows
        ]
    }


def table_rows(rows: Sequence[Row], baselines: Mapping[str, Row | None]) -> Iterable[Sequence[object]]:
    """The comparison as a table for files: one line per combination, absolute figures, then percentages."""
    times = ("mean_ms", "median_ms", "p99_ms", "max_ms")
    plain = ("jobs", *FIGURES, "makespan_s", "rounds", "cpu_s", "violations")
    yield (
        "dispatcher", "predictor", *plain, *(f"dispatch_{name}" for name in times),
        *(f"{name}_percent" for name in FIGURES), "error",
    )  # fmt: skip
    for row in rows:
        summary = row.summary or {}
        percent = percentages(row, baselines[row.name])
        yield (
            row.dispatcher,
            row.predictor,
            *(summary.get(name, "") for name in plain),
            *(summary.get("dispatch", {}).get(name, "") for name in times),
            *(percent.get(name, "") for name in FIGURES),
            row.error,
        )
