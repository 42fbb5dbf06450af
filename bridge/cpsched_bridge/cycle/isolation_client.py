"""A dispatcher in a process of its own, which can be killed: no call into compiled code outlives the deadline.

A thread would not do: a solver or a kernel that holds the interpreter's lock keeps every other thread from running,
and nothing can end a thread. A process that hangs is killed, and the next decision gets a new one.

- A child begins by importing and compiling. That is no answer, and no limit for answers counts it: whoever asks looks
  at `waits_for` first. Each kernel is kept on disk, so that a child that is killed while it begins repeats little.
- A round is sent as the columns that this side has made already, and decided on as they are. Jobs as objects, with
  their names, are sent once, and again when they change.
- Predictor, verification and ledger stay on this side.
- What a dispatcher has learned and tells (`Dispatcher.memory`) is given to the process that follows. What it does not
  tell dies with the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Cluster, Decision, EndedJob, IntArray, Job, Need, Snapshot
from cpsched.model.job_table import COLUMNS
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.child_processes import STALL_TIMEOUT_S, ChildProcess
from cpsched_bridge.errors import DispatcherError

_LAST_BREATH_S = 10.0
"""How long a process that has hung up may take to end: the compiler in it has much to clear away."""
MODULE = "cpsched_bridge.program.isolation_worker"


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """What the dispatcher is to know before anything else; sent alone, it asks for the dispatcher's memory."""

    lessons: tuple[EndedJob, ...]
    """What ended since it was last told."""
    memory: Any = None
    """What an earlier process had in memory; only in the first message to a new process."""


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """One round, as it is sent: a snapshot, with its jobs and its cluster only where they are not known there."""

    now_s: int
    need: Need
    cluster: tuple[Any, ...] | None
    """The fields of a `Cluster`; None: the same as before."""
    free: IntArray
    ids: IntArray
    """The id of each job of the table, by slot."""
    jobs: tuple[Job, ...]
    """Jobs that are new, or differ from what was sent before."""
    columns: Mapping[str, IntArray]
    """The table's columns, by name."""
    places: tuple[IntArray, IntArray]
    """Nodes and units of all placements."""
    queue: IntArray
    running: IntArray
    known: EndedJobs


@dataclass(frozen=True, slots=True)
class Init:
    """What a child is to begin with: the first message to it."""

    spec: PolicySpec
    modules: tuple[str, ...] = ()
    """Further modules whose kernels it compiles, because the bridge's own process needs them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a child that begins has come, in words; empty words: it can be asked."""

    words: str = ""


@dataclass(frozen=True, slots=True)
class DecideResponse:
    """What came of a message: a decision where one was asked for, or the words of what went wrong."""

    decision: Any = None
    learns: bool = False
    memory: Any = None
    failure: str = ""


class IsolatedDispatcher(Dispatcher):
    """Asks the dispatcher of `spec` in a child process; started now, replaced when it dies or is interrupted.

    Calls come from one thread. A call that is interrupted by whatever exception, `within`'s among them, kills the
    child.
    """

    def __init__(
        self,
        spec: PolicySpec,
        module: str = MODULE,
        compiles: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begins, self._module, self._clock = Init(spec, compiles), module, clock
        self._child: ChildProcess | None = None
        self._channel: Connection[Any, Any] | None = None
        self._lessons: list[EndedJob] = []
        self._memory: Any = None
        self._current = False
        """Whether `_memory` is what the child knows now, but for `_lessons`."""
        self._learns = True
        self._doing = ""
        """What the child has yet to do before it can be asked."""
        self._progress_s = 0.0
        """When it last said what it does."""
        self._came_to_nothing = ""
        """Why a child could not begin; told by the next question."""
        self.starts = 0
        """Children started so far."""
        self._begin()

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """What the dispatcher said with its last answer."""
        return self._learns

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is one."""
        return None if self._child is None else self._child.pid

    def waits_for(self) -> str | None:
        """What the child has yet to do before it can be asked, in words; None: asking is due.

        Waits for nothing. A child is started where there is none. One that shows no progress for `STALL_TIMEOUT_S`
        seconds is
        killed; that, and the death of a child that begins, is told by the next question.
        """
        if self._came_to_nothing:
            return None
        try:
            if self._channel is None:
                self._begin()
            while self._doing and self._channel is not None and self._channel.poll():
                self._note(self._channel.recv())
        except (EOFError, OSError) as error:
            self._came_to_nothing = self._died(error)
        if self._doing and self._clock() - self._progress_s > STALL_TIMEOUT_S:
            self._came_to_nothing = (
                f"its process began, and hangs: {self._doing} (no progress in {STALL_TIMEOUT_S:g} s)"
            )
            self.close()
        return self._doing or None

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """The child's decision, once it can be asked.

        Raises `DispatcherError` where the child has died or says what went wrong.
        """
        decision: Decision = self._ask(lambda: self._question(snapshot, need)).decision
        return decision

    def learn(self, ended: EndedJob) -> None:
        """Told to the child with the next message."""
        self._lessons.append(ended)

    def memory(self) -> Any:
        """What the child has in memory now; raises as `decide` does.

        Each answer tells it, so that the child is asked only where something came after its last answer.
        """
        if self._lessons or not self._current:
            self._ask(self._to_be_known)
        return self._memory

    def recall(self, memory: Any) -> None:
        """Begin anew, with a child that knows what `memory` says."""
        self.close()
        self._memory = memory

    def close(self) -> int | None:
        """Kill the child; returns its exit status, if there was a child."""
        self._current, self._doing = False, ""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status

    def _begin(self) -> None:
        self._child = ChildProcess(self._module)
        self._channel = Connection(self._child.channel.detach())
        self._channel.send(self._begins)
        self._doing, self._progress_s = "the dispatcher's process starts", self._clock()
        self._known: dict[int, Job] = {}
        self._cluster: Cluster | None = None
        self._recalled = self._memory is None
        self.starts += 1

    def _note(self, said: Progress) -> None:
        self._doing, self._progress_s = said.words, self._clock()

    def _died(self, error: Exception) -> str:
        """In words, what became of a child that has hung up."""
        if self._child is not None:
            self._child.alive(_LAST_BREATH_S)  # so that its own exit status is told, not that of the kill
        return f"its process died (exit status {self.close()}): {error}"

    def _ask(self, message: Callable[[], DecideRequest | EndedJobs]) -> DecideResponse:
        """The child's answer; a child is started if there is none, and what it begins with is waited for."""
        failure, self._came_to_nothing = self._came_to_nothing, ""
        if failure:
            raise DispatcherError(failure)
        try:
            if self._channel is None:
                self._begin()
            assert self._channel is not None
            while self._doing:
                self._note(self._channel.recv())
            lessons = len(self._lessons)
            self._channel.send(message())
            answer: DecideResponse = self._channel.recv()
        except (EOFError, OSError) as error:
            raise DispatcherError(self._died(error)) from error
        except BaseException:
            self.close()
            raise
        self._recalled = True
        self._lessons = self._lessons[lessons:]
        self._current = not answer.failure
        if answer.failure:
            raise DispatcherError(answer.failure)
        self._learns, self._memory = answer.learns, answer.memory
        return answer

    def _to_be_known(self) -> EndedJobs:
        return EndedJobs(tuple(self._lessons), None if self._recalled else self._memory)

    def _question(self, snapshot: Snapshot, need: Need) -> DecideRequest:
        table = snapshot.table
        known, self._known = self._known, {job.id: job for job in table.jobs}
        fresh = tuple(job for id, job in self._known.items() if known.get(id) is not job and known.get(id) != job)
        known_cluster, self._cluster = self._cluster, snapshot.cluster
        return DecideRequest(
            snapshot.now_s,
            need,
            None if known_cluster is snapshot.cluster else fields_of(snapshot.cluster),
            snapshot.free,
            np.fromiter((job.id for job in table.jobs), np.int64, len(table.jobs)),
            fresh,
            {name: getattr(table, name) for name in COLUMNS},
            (table.place_node, table.place_units),
            snapshot.queue,
            snapshot.running,
            self._to_be_known(),
        )


def fields_of(cluster: Cluster) -> tuple[Any, ...]:
    """What a `Cluster` is made of, without what it has worked out meanwhile."""
    sets = cluster.node_sets, cluster.node_set_names
    return cluster.node_names, cluster.resources, cluster.capacity, *sets, cluster.epoch_s
