"""The tuner beside the bridge: a thread that notes what ended, and once a day a process that replays the last weeks.

Nothing of it touches the cycle. The cycle hands over reports and takes what is ready, under a lock that nobody holds
for longer than a copy takes. The process has little priority, a limit of CPU time and of memory, and a deadline; it
answers by a file. What goes wrong with it, whatever that is, is told as an event, and tried again a day later.
"""

from __future__ import annotations

import json
import math
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol

import structlog

from cpsched.goals import Goal
from cpsched.model import Cluster, EndedJob
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.children import Child
from cpsched_bridge.cycle.failures import described
from cpsched_bridge.program.beside import beside
from cpsched_bridge.report import CycleReport, Happening, Tuning
from cpsched_bridge.settings import TuneSettings
from cpsched_bridge.store.damage import Damaged, content, start_of
from cpsched_bridge.store.rounds import cluster_to_json
from cpsched_bridge.store.tuning import (
    Finding,
    TuningFile,
    TuningStep,
    failed,
    next_step,
    write_for_the_owner,
)
from cpsched_bridge.store.weeks import WeeksFile

MODULE = "cpsched_bridge.program.tuning_process"
LOOK_S = 30.0
"""Between two looks of the thread."""
LONGEST = 6.0
"""Times its CPU time, that a process may take by the clock."""
_MOST_NOTED = 20_000
"""Ended jobs that wait for the disk; the oldest go first."""
_MOST_BYTES = 4_000_000
LESSONS = 2000
"""Ended jobs that a new predictor learns from."""


class Process(Protocol):
    """A process of the tuner."""

    def alive(self, wait_s: float = 0.0) -> bool:
        """Whether it still runs."""
        ...

    def kill(self) -> int:
        """End it; its exit status."""
        ...


def started(request: Path, result: Path) -> Process:
    """Start the process. Raises `OSError`."""
    return Child(MODULE, str(request), str(result))


class Tuner:
    """See the module. `base` is the policy without a tuner; `clock` gives monotonic seconds."""

    def __init__(
        self,
        settings: TuneSettings,
        goal: Goal,
        base: PolicySpec,
        folder: Path,
        clock: Callable[[], float],
        start: Callable[[Path, Path], Process] = started,
    ) -> None:
        self._settings, self._goal, self._base, self._clock, self._start = settings, goal, base, clock, start
        self._file, self._weeks = TuningFile(folder / "tuning.json"), WeeksFile(folder / "weeks.jsonl")
        self._request, self._result = folder / "tuning-request.json", folder / "tuning-result.json"
        self._state = self._file.read(base)
        self._noted: deque[tuple[EndedJob, str]] = deque(maxlen=_MOST_NOTED)
        self._recent: deque[EndedJob] = deque(maxlen=LESSONS)
        self._news: deque[Happening] = deque(maxlen=100)
        self._now: tuple[int, Cluster] | None = None
        self._lock = Lock()
        self._process: Process | None = None
        self._begun_s = 0.0
        self._asked_s = 0
        self._disk = ""

    # ------------------------------------------------------------------------------------------ on the cycle's side

    def __call__(self, report: CycleReport) -> None:
        """Take note of what ended in a cycle, and of the machine."""
        if report.observation is None:
            return
        cluster = report.observation.cluster
        names, ended = cluster.node_set_names, [*report.past, *report.ended]
        with self._lock:
            self._now = report.observation.now_s, cluster
            self._recent.extend(ended)
            self._noted.extend((each, names[each.job.request.node_set]) for each in ended)

    @property
    def told(self) -> Tuning:
        """See `cycle.tuned.Tuner`."""
        state = self._state
        return Tuning(self._settings.mode, state.status, state.tuned is not None, state.expects, state.came)

    def news(self) -> Sequence[Happening]:
        """See `cycle.tuned.Tuner`."""
        with self._lock:
            found = list(self._news)
            self._news.clear()
        return found

    def wanted(self) -> PolicySpec:
        """See `cycle.tuned.Tuner`."""
        tuned = self._state.tuned if self._settings.mode == "on" else None
        return self._base if tuned is None else tuned

    def recent(self) -> list[EndedJob]:
        """The last jobs that ended, for a predictor that begins anew."""
        with self._lock:
            return list(self._recent)

    # ----------------------------------------------------------------------------------------- on the thread's side

    def look(self) -> None:
        """Write down what was noted, look after the process, and start one where that is due."""
        self._write_down()
        with self._lock:
            now = self._now
        if now is None:
            return
        if self._process is not None:
            self._look_after(self._process)
        elif now[0] - max(self._state.asked_s, self._asked_s) >= self._settings.every_h * 3600:
            self._ask(*now)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _write_down(self) -> None:
        with self._lock:
            noted = list(self._noted)
        try:
            self._weeks.add(noted)
        except OSError as error:
            if (words := f"{self._weeks.path.name} cannot be written: {error.strerror or error}") != self._disk:
                self._tell("tuning_failed", words)
            self._disk = words
            return
        self._disk = ""
        with self._lock:  # what came meanwhile stands behind what is written
            for _ in range(min(len(noted), len(self._noted))):
                self._noted.popleft()

    def _ask(self, now_s: int, cluster: Cluster) -> None:
        self._asked_s = now_s
        state = self._state
        request = {
            "now_s": now_s,
            "weeks_file": str(self._weeks.path),
            "cluster": cluster_to_json(cluster),
            "weights": dict(self._goal.weights),
            "name": self._goal.name,
            "limits": dict(self._goal.limits),
            "present": asdict(self.wanted()),
            "base": asdict(self._base),
            "since_s": state.since_s if state.tuned is not None else None,
            **self._settings.model_dump(include={"weeks", "window_days", "cpu_s", "memory_mib"}),
        }
        try:
            self._result.unlink(missing_ok=True)
            write_for_the_owner(self._request, json.dumps(request).encode())
            self._process, self._begun_s = self._start(self._request, self._result), self._clock()
        except (OSError, ValueError, TypeError) as error:
            self._fail(f"cannot be started: {described(error)}")

    def _look_after(self, process: Process) -> None:
        if process.alive():
            limit_s = LONGEST * self._settings.cpu_s
            if self._clock() - self._begun_s > limit_s:
                self.close()
                self._fail(f"did not end within {limit_s:g} s")
            return
        self._process = None
        status = process.kill()
        try:
            with content("its answer makes no sense"):
                answer = json.loads(start_of(self._result, _MOST_BYTES))
                finding = None if "error" in answer else finding_of(answer)
            if finding is None:
                self._fail(str(answer["error"])[:500])
            else:
                self._take(next_step(self._state, finding, self._settings.mode))
        except OSError:
            self._fail(_ended(status, self._settings))
        except Damaged as error:
            self._fail(str(error)[:500])
        finally:
            for path in (self._request, self._result):
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _fail(self, why: str) -> None:
        self._take(failed(self._state, self._asked_s, why))

    def _take(self, step: TuningStep) -> None:
        """Keep the new state before it comes into force: a change that a restart would forget is not made."""
        try:
            self._file.write(step.state)
        except OSError as error:
            words = f"{self._file.path.name} cannot be written, and nothing is changed: {error.strerror or error}"
            self._state = replace(self._state, failure=words)
            self._tell("tuning_failed", words)
            return
        self._state = step.state
        if step.kind is not None:
            self._tell(step.kind, step.detail)

    def _tell(self, kind: str, detail: str) -> None:
        with self._lock:
            self._news.append(Happening(kind, detail))


def _ended(status: int, settings: TuneSettings) -> str:
    """What became of a process that left no answer."""
    if status == -signal.SIGXCPU:
        return f"its budget of CPU time is too small: tune.cpu_s is {settings.cpu_s}"
    return f"its process ended without an answer (exit status {status})"


def finding_of(answer: Mapping[str, Any]) -> Finding:
    """The finding that a process wrote; raises `ValueError`, `TypeError` or `LookupError` for anything else."""
    chosen = answer["chosen"]
    numbers = [float(answer[name]) for name in ("ratio", "low", "worst_window")]
    high, came = answer["high"], answer["came"]
    if not all(map(math.isfinite, [*numbers, *([] if came is None else [float(came)])])):
        raise ValueError("a ratio must be a number")
    return Finding(
        at_s=int(answer["at_s"]),
        verdict=str(answer["verdict"]),
        sentence=str(answer["sentence"])[:500],
        chosen=None if chosen is None else PolicySpec(**chosen),
        changes=str(answer["changes"])[:300],
        ratio=numbers[0],
        low=numbers[1],
        high=math.inf if high is None else float(high),
        worst_window=numbers[2],
        came=None if came is None else float(came),
    )


@contextmanager
def tuning(tuner: Tuner) -> Iterator[None]:
    """Have the tuner look again and again, in a thread, until the block ends."""

    def again_and_again(over: Event) -> None:
        while not over.wait(LOOK_S):
            try:
                tuner.look()
            except Exception as error:  # a tuner is no reason to end for a bridge
                with suppress(OSError, ValueError):
                    structlog.get_logger("tuner").error("tuner", detail=described(error))
        tuner.close()

    with beside("tuner", again_and_again):
        yield
