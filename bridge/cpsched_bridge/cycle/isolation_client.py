"""Run a dispatcher in its own process, which can be killed: no compiled call outlives the deadline.

A thread is not enough: a solver or a kernel that holds the interpreter's lock stops every other thread, and a thread
cannot be ended. A process that hangs is killed, and the next decision gets a new one.

- A child starts with imports and compiling. No limit for answers includes that: callers check `not_ready_reason`
  first. Each
  kernel is cached on disk, so that a child that is killed during start-up repeats little.
- A round is sent as the columns that this side has already built. Jobs as objects, with their names, are sent once, and
  again when they change.
- Predictor, verification and ledger stay on this side.
- Learned state that a dispatcher exports (`Dispatcher.memory`) is sent to the next process. Other state is lost with
  the process.
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
"""Time for a disconnected process to end: its compiler has much to clean up."""
MODULE = "cpsched_bridge.program.isolation_worker"


@dataclass(frozen=True, slots=True)
class EndedJobsMessage:
    """Training data for the dispatcher; sent alone, it requests the dispatcher's memory."""

    lessons: tuple[EndedJob, ...]
    """Jobs that ended since the last message."""
    memory: Any = None
    """Memory of an earlier process; only in the first message to a new process."""


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """One round in transport form: a snapshot, with jobs and cluster only if new or changed."""

    now_s: int
    need: Need
    cluster: tuple[Any, ...] | None
    """The fields of a `Cluster`; None: unchanged."""
    free: IntArray
    ids: IntArray
    """Job ids of the table, by slot."""
    jobs: tuple[Job, ...]
    """Jobs that are new or changed."""
    columns: Mapping[str, IntArray]
    """The table's columns, by name."""
    places: tuple[IntArray, IntArray]
    """Nodes and units of all placements."""
    queue: IntArray
    running: IntArray
    known: EndedJobsMessage


@dataclass(frozen=True, slots=True)
class WorkerInit:
    """The first message to a child: what it starts with."""

    spec: PolicySpec
    modules: tuple[str, ...] = ()
    """Additional modules whose kernels it compiles for the bridge's own process."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """Progress of a starting child as text; empty: it is ready."""

    words: str = ""


@dataclass(frozen=True, slots=True)
class DecideResponse:
    """The response to a message: a decision if requested, or the error."""

    decision: Any = None
    learns: bool = False
    memory: Any = None
    failure: str = ""


class IsolatedDispatcher(Dispatcher):
    """Asks the dispatcher of `spec` in a child process, which starts now and is replaced after a death or an interrupt.

    Calls come from one thread. Any exception that interrupts a call, such as that of `run_within`, kills the child.
    """

    def __init__(
        self,
        spec: PolicySpec,
        module: str = MODULE,
        compiles: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._begins, self._module, self._clock = WorkerInit(spec, compiles), module, clock
        self._child: ChildProcess | None = None
        self._channel: Connection[Any, Any] | None = None
        self._lessons: list[EndedJob] = []
        self._memory: Any = None
        self._current = False
        """Whether `_memory`, with `_lessons`, is the child's current memory."""
        self._learns = True
        self._doing = ""
        """The step that the starting child runs."""
        self._progress_s = 0.0
        """When it last reported progress."""
        self._came_to_nothing = ""
        """Why a child could not start; the next request raises it."""
        self.starts = 0
        """Number of children started so far."""
        self._begin()

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the dispatcher learns, by its last response."""
        return self._learns

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is one."""
        return None if self._child is None else self._child.pid

    def not_ready_reason(self) -> str | None:
        """Return what the child must finish before it can be asked; None: it is ready, or an error is due.

        Never wait. Start a child if there is none. Kill one without progress for `STALL_TIMEOUT_S` seconds. The next
        request raises that, or the death of a starting child.
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
                f"its process started, and hangs: {self._doing} (no progress in {STALL_TIMEOUT_S:g} s)"
            )
            self.close()
        return self._doing or None

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Return the child's decision, once it is ready.

        Raise `DispatcherError` if the child died or reports an error.
        """
        decision: Decision = self._ask(lambda: self._question(snapshot, need)).decision
        return decision

    def learn(self, ended: EndedJob) -> None:
        """Record an ended job for the next message to the child."""
        self._lessons.append(ended)

    def memory(self) -> Any:
        """Return the child's current memory. Raise as `decide` does.

        Each response includes it, so the child is asked only after further training.
        """
        if self._lessons or not self._current:
            self._ask(self._to_be_known)
        return self._memory

    def recall(self, memory: Any) -> None:
        """Restart with a child that has this memory."""
        self.close()
        self._memory = memory

    def close(self) -> int | None:
        """Kill the child. Return its exit status, or None if there was no child."""
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

    def _note(self, said: WorkerProgress) -> None:
        self._doing, self._progress_s = said.words, self._clock()

    def _died(self, error: Exception) -> str:
        """Return as text why a child disconnected."""
        if self._child is not None:
            self._child.is_alive(_LAST_BREATH_S)  # to report its own exit status, not that of the kill
        return f"its process died (exit status {self.close()}): {error}"

    def _ask(self, message: Callable[[], DecideRequest | EndedJobsMessage]) -> DecideResponse:
        """Return the child's response. Start a child if there is none, and wait for its start-up."""
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

    def _to_be_known(self) -> EndedJobsMessage:
        return EndedJobsMessage(tuple(self._lessons), None if self._recalled else self._memory)

    def _question(self, snapshot: Snapshot, need: Need) -> DecideRequest:
        table = snapshot.table
        known, self._known = self._known, {job.id: job for job in table.jobs}
        fresh = tuple(job for id, job in self._known.items() if known.get(id) is not job and known.get(id) != job)
        known_cluster, self._cluster = self._cluster, snapshot.cluster
        return DecideRequest(
            snapshot.now_s,
            need,
            None if known_cluster is snapshot.cluster else list_cluster_fields(snapshot.cluster),
            snapshot.free,
            np.fromiter((job.id for job in table.jobs), np.int64, len(table.jobs)),
            fresh,
            {name: getattr(table, name) for name in COLUMNS},
            (table.place_node, table.place_units),
            snapshot.queue,
            snapshot.running,
            self._to_be_known(),
        )


def list_cluster_fields(cluster: Cluster) -> tuple[Any, ...]:
    """What a `Cluster` is made of, without what it has worked out meanwhile."""
    sets = cluster.node_sets, cluster.node_set_names
    return cluster.node_names, cluster.resources, cluster.capacity, *sets, cluster.epoch_s
