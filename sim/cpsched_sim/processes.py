"""Many replays of one trace, each in a process of its own.

A process of its own buys that a combination that crashes, runs out of memory or raises loses nothing but itself. All
of them are forked by a server, a fresh process that has imported what a replay needs and done nothing else: so no state
of this process leaks into a study, and only the first replay waits for the imports, which take most of a second.
"""

from __future__ import annotations

import csv
import gzip
import math
import multiprocessing
import os
import select
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.errors import CpschedError
from cpsched.metrics import METRICS, Measures, metric
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.errors import SimError
from cpsched_sim.experiment import SCHEDULE, Setup, identity, run, summed_up, write_results
from cpsched_sim.patience import LIMIT_S, patience
from cpsched_sim.results import check_made_alike, finished_in
from cpsched_sim.traces.dialect import PLAIN, Dialect
from cpsched_sim.workloads.dates import ALWAYS, Between
from cpsched_sim.workloads.load import Workload, load, under


@dataclass(frozen=True, slots=True)
class Study:
    """What all combinations share. Plain values: it travels to other processes.

    `metrics` are shown beside those of the table; with `measures` set, the columns that they are computed from come
    back with every row.
    """

    trace: Path
    system: str | None = None
    max_jobs: int | None = None
    lenient: bool = False
    out: Path | None = None
    format: str | None = None
    metrics: tuple[str, ...] = ()
    measures: bool = False
    policy: Path | None = None
    """The policy file of a site."""
    dialect: Dialect = PLAIN
    limit_s: float = LIMIT_S
    """How long a plug-in may go on without progress; 0: for ever."""
    between: Between = ALWAYS
    """The part of the trace."""


_IMPORTED_ONCE = (
    "__main__", "cpsched_sim.processes", "cpsched.kernels", "cpsched_sim.offline", "cpsched_sim.cluster.replay",
    "numba",
)  # fmt: skip
"""What the server imports before it forks. Every replay calls kernels, which need Numba."""

Fractions = Callable[[float, int], None]
"""Called with (combinations done, parts included; combinations in all)."""


def compare_in_processes(
    study: Study,
    chosen: Sequence[Setup],
    processes: int,
    progress: Fractions | None = None,
    done: dict[int, ComparisonRow] | None = None,
) -> list[ComparisonRow]:
    """All combinations, at most so many at once, in the order given. Stopped by any exception, Ctrl-C included.

    `done` holds the rows of combinations by their place in `chosen`: those that it brings are not replayed, and each
    that is finished is put there at once, so that whoever stops this has what was finished until then.
    """
    rows: dict[int, ComparisonRow] = {} if done is None else done
    tasks = {index: (study, setup) for index, setup in enumerate(chosen) if index not in rows}
    shares = [float(index in rows) for index in range(len(chosen))]

    def heard(index: int, message: object) -> bool:
        """A row, or the share of a combination's jobs that is done."""
        row = _failed(chosen[index], str(message)) if isinstance(message, Died) else message
        if isinstance(row, ComparisonRow):
            rows[index], shares[index] = row, 1.0
            return True
        assert isinstance(row, float)
        shares[index] = row
        return False

    def looked() -> None:
        if progress is not None:
            progress(sum(shares), len(chosen))

    side_by_side(replay_one, tasks, processes, heard, looked)
    return [rows[index] for index in sorted(rows)]


@dataclass(frozen=True, slots=True)
class Died:
    """What is heard of a process that ended without its last word; `late` where it was ended after its time."""

    exit_code: int | None
    late: bool = False
    wall_s: float | None = None
    """Since it began."""
    cpu_s: float | None = None
    """What it had used when it was ended; known of late ones alone."""

    def __str__(self) -> str:
        return "it took too long" if self.late else f"its process died with exit code {self.exit_code}"


def side_by_side(
    work: Callable[..., None],
    tasks: Mapping[int, Sequence[object]],
    processes: int,
    heard: Callable[[int, object], bool],
    looked: Callable[[], None] = lambda: None,
    limit_s: float = math.inf,
) -> None:
    """Do `work(*tasks[index], pipe)` for every task, each in a process of its own, at most so many at once.

    `heard` is told what a process sends, and says whether that was its last word; of a process that ended without
    one it is told `Died`; so it is of one that takes longer than `limit_s`, which is ended. `looked` is called about
    once a second. Any exception, Ctrl-C included, ends all processes. What a process forked ends with it.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(_IMPORTED_ONCE))  # no effect on a server that runs already
    environment = dict(os.environ)
    waiting = list(tasks.items())[::-1]
    running: dict[Connection, tuple[int, ForkServerProcess]] = {}
    began_s: dict[int, float] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index, given = waiting.pop()
                ours, theirs = server.Pipe(duplex=False)
                process = server.Process(target=_begun, args=(environment, work, *given, theirs), daemon=True)
                with _interrupts_held():
                    process.start()
                    running[ours] = index, process
                began_s[index] = time.monotonic()
                theirs.close()
            for pipe in wait(list(running), timeout=1.0):
                assert isinstance(pipe, Connection)
                index, process = running[pipe]
                if heard(index, _received(pipe, process, began_s[index])):
                    del running[pipe]
                    _end(process)
            for pipe, (index, process) in list(running.items()):
                if (wall_s := time.monotonic() - began_s[index]) > limit_s:
                    cpu_s = _cpu_s(process)
                    _end(process)
                    del running[pipe]
                    heard(index, Died(process.exitcode, True, wall_s, cpu_s))
            looked()
    finally:
        for _, process in running.values():
            _end(process)


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


def _received(pipe: Connection, process: ForkServerProcess, began_s: float) -> object:
    """What a process sent."""
    try:
        return pipe.recv()
    except EOFError:
        process.join()
        return Died(process.exitcode, wall_s=time.monotonic() - began_s)


def _end(process: ForkServerProcess) -> None:
    """End a process and whatever it forked: it leads a group of its own, in which forks stay unless they leave it."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # one that has just begun leads no group yet
    process.join()


def _cpu_s(process: ForkServerProcess) -> float | None:
    """The CPU time of a process until now, in seconds; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def _begun(environment: Mapping[str, str], work: Callable[..., None], *given: object) -> None:
    """Do `work` in the environment of whoever compares; the server has the one of its own beginning.

    Of the processes that a plug-in forks none can speak for this one, nor hide that it died, nor outlive it.
    """
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    for pipe in given:
        if isinstance(pipe, Connection):
            _end_without(pipe)
            os.register_at_fork(after_in_child=pipe.close)
    work(*given)


def _end_without(pipe: Connection) -> None:
    """End this process, and what it forked, when nobody is left at the other end: whoever compares was killed."""
    gone = select.poll()
    gone.register(pipe, 0)  # errors are told unasked, and the end of the other end is one

    def wait() -> None:
        gone.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def replay_one(study: Study, setup: Setup, pipe: Connection) -> None:
    """The work of one process: it sends the share of jobs done now and then, and the row at the end."""
    try:
        with patience(study.limit_s) as patient:
            workload = load(
                study.trace, study.system, study.lenient, study.max_jobs, patient.renew, study.format, study.dialect,
                study.between,
            )  # fmt: skip
            workload = under(workload, study.policy) if study.policy is not None else workload
            more = tuple(map(metric, study.metrics))
            share = patient.and_tell(lambda done, total: pipe.send(done / total))
            simulation = run(workload, setup, share, more=more)
            folder = _folder(study.out, setup) if study.out is not None else None
            summary = summed_up(simulation, folder)
        policy, unsaved = setup.policy, ""
        try:
            if folder is not None:
                write_results(simulation, folder, summary)
        except SimError as error:
            unsaved = str(error)
        measures = replace(simulation.measures, jobs=()) if study.measures else None
        pipe.send(ComparisonRow(policy.dispatcher, policy.predictor, summary, unsaved, measures, simulation.hints))
    except (CpschedError, SimError) as error:
        pipe.send(_failed(setup, str(error)))
    except Exception as error:
        pipe.send(_failed(setup, f"{type(error).__name__}: {error}"))


def finished_before(
    study: Study, chosen: Sequence[Setup], workload: Workload
) -> tuple[dict[int, ComparisonRow], list[ComparisonRow]]:
    """What an earlier run finished in `study.out`: rows by their place in `chosen`, and those of other combinations.

    Raises `Unusable` where any of it was made of anything else than what is asked for now: what a replay depends on
    (`identity`), the project's version, further metrics.
    """
    assert study.out is not None
    asked = {
        _folder(study.out, setup).name: {"version": version("cpsched"), **identity(setup, workload)} for setup in chosen
    }
    check_made_alike(study.out, asked, [metric(name).name for name in study.metrics])
    places = {name: index for index, name in enumerate(asked)}
    found: dict[int, ComparisonRow] = {}
    others: list[ComparisonRow] = []
    for name, written in finished_in(study.out).items():
        row = _finished(study, written, study.out / name)
        if row is not None and name in places:
            found[places[name]] = row
        elif row is not None:
            others.append(row)
    return found, others


def _finished(study: Study, written: Mapping[str, Any], folder: Path) -> ComparisonRow | None:
    """The row of a combination; None where a part of it is missing or damaged, so that it must be replayed."""
    try:
        schedule = _measures_of(folder / SCHEDULE) if study.measures else None
    except (OSError, ValueError, LookupError, TypeError, EOFError, zlib.error):
        return None
    if not {each.name for each in METRICS} <= written.keys() or not (folder / SCHEDULE).exists():
        return None
    summary = {name: value for name, value in written.items() if name not in ("version", "date", "setup")}
    setup = written["setup"]
    return ComparisonRow(
        setup["dispatcher"], setup["predictor"], summary, measures=schedule, hints=tuple(setup.get("hints", ()))
    )


def _measures_of(path: Path) -> Measures:
    """The columns of a schedule that was written, for plots: nobody asks them for processors."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["start_s"]]
    submit_s, start_s, end_s, units = (
        np.array([int(row[name]) for row in rows], np.int64) for name in ("submit_s", "start_s", "end_s", "units")
    )
    return Measures(submit_s, start_s, end_s, units)


def _folder(out: Path, setup: Setup) -> Path:
    """The folder for the results of a combination."""
    name = f"{setup.policy.dispatcher}-{setup.policy.predictor}".replace("/", "_")
    earlier = out / name
    return earlier if earlier.is_dir() else out / name.replace(":", ".")  # a colon is no part of a name on some disks


def _failed(setup: Setup, error: str) -> ComparisonRow:
    return ComparisonRow(setup.policy.dispatcher, setup.policy.predictor, error=error)
