"""Run a dispatcher in its own process, which can be killed at the deadline.

A thread would not be enough: a solver or kernel that holds the interpreter lock blocks every other thread, and a
thread cannot be killed. A process that hangs is killed, and the next decision uses a new one.

- The time limit for a response excludes the start of a child, because callers check `not_ready_reason` first. Each
  kernel is cached on disk. A child that replaces one killed during start-up therefore repeats little work.
- A round is sent as columns that the bridge's process has already built. Job objects, with their names, are sent only
  when they are new or changed.
- The predictor, the verification and the ledger stay in the bridge's process.
- Learned state that a dispatcher exports (`Dispatcher.memory`) is sent to the next process. Any other state is lost
  with the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Cluster, Decision, EndedJob, IntArray, Job, Need, Snapshot
from cpsched.model.job_table import COLUMNS
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.child_server import ChildProgram, ChildServer
from cpsched_bridge.errors import ChildFailure, DispatcherError

WORKER_MODULE = "cpsched_bridge.program.isolation_worker"


@dataclass(frozen=True, slots=True)
class EndedJobsMessage:
    """Training data for a dispatcher. Sent alone, it requests the dispatcher's memory."""

    ended_jobs: tuple[EndedJob, ...]
    """Jobs that have ended since the last message."""
    memory: Any = None
    """Memory of an earlier process, which only the first message to a new process contains."""


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """A snapshot for transport. Unchanged jobs and an unchanged cluster are omitted."""

    now_s: int
    need: Need
    cluster: Cluster | None
    """The cluster, or None if it is unchanged."""
    free: IntArray
    ids: IntArray
    """Job ids in the table, by slot."""
    jobs: tuple[Job, ...]
    """Jobs that are new or changed."""
    columns: Mapping[str, IntArray]
    """The table's columns, by name."""
    places: tuple[IntArray, IntArray]
    """The nodes and the units of all placements."""
    queue: IntArray
    running: IntArray
    known: EndedJobsMessage


@dataclass(frozen=True, slots=True)
class WorkerInit:
    """The first message to a child, with its start-up parameters."""

    spec: PolicySpec
    modules: tuple[str, ...] = ()
    """Additional modules whose kernels the child compiles for the bridge's own process."""


@dataclass(frozen=True, slots=True)
class DecideResponse:
    """The response to a message, with the requested decision or the error."""

    decision: Any = None
    learns: bool = False
    memory: Any = None
    failure: str = ""


@dataclass(slots=True)
class SentState:
    """What one child has received, so that only changes are sent."""

    start: int = 0
    """Number of the child (see `ChildServer.starts`)."""
    jobs: Mapping[int, Job] = field(default_factory=dict)
    cluster: Cluster | None = None
    has_memory: bool = False
    """Whether the child has received the memory of an earlier one."""
    is_memory_current: bool = False
    """Whether the child's last memory, together with the unsent ended jobs, represents its current memory."""


class IsolatedDispatcher(Dispatcher):
    """A proxy for the dispatcher of `spec` in a child process, started immediately.

    The child is replaced after it dies or is interrupted. All calls must come from one thread. Any exception that
    interrupts a call, for example the exception of `run_within_time_limit`, kills the child.
    """

    def __init__(self, spec: PolicySpec, compiles: tuple[str, ...] = ()) -> None:
        program = ChildProgram(WORKER_MODULE, "its process", "the dispatcher's process is starting")
        self._server = ChildServer(program, WorkerInit(spec, compiles))
        self._sent = SentState()
        self._unsent_ended_jobs: list[EndedJob] = []
        self._memory: Any = None
        self._learns = True
        self._startup_failure: ChildFailure | None = None
        """Why a child could not start. The next request raises this as an error."""
        self._server.start()

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the dispatcher learns, according to its last response."""
        return self._learns

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None if there is no child."""
        return self._server.pid

    @property
    def starts(self) -> int:
        """Number of children started so far."""
        return self._server.starts

    def not_ready_reason(self) -> str | None:
        """Return the start-up step that the child is running, or None. Never block.

        None means that the child is ready or that an error is pending. Start a child if there is none. If a child died
        during start-up, or was killed because it made no progress, the next request raises an error.
        """
        if self._startup_failure is not None:
            return None
        try:
            return self._server.not_ready_reason()
        except ChildFailure as error:
            self._startup_failure = error
            return None

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Wait until the child is ready and return its decision.

        Raise `DispatcherError` if the child died or reported an error.
        """
        decision: Decision = self._send_and_await_response(lambda: self._make_decide_request(snapshot, need)).decision
        return decision

    def learn(self, ended: EndedJob) -> None:
        """Store an ended job for the next message to the child."""
        self._unsent_ended_jobs.append(ended)

    def memory(self) -> Any:
        """Return the child's current memory. Raise the same errors as `decide`.

        Each response includes the memory, so a request is sent only after further training.
        """
        if self._unsent_ended_jobs or self.pid is None or not self._sent.is_memory_current:
            self._send_and_await_response(self._make_ended_jobs_message)
        return self._memory

    def recall(self, memory: Any) -> None:
        """Kill the child, and start the next child with this memory."""
        self.close()
        self._memory = memory

    def close(self) -> int | None:
        """Kill the child. Return its exit status, or None if there is none."""
        return self._server.close()

    def _send_and_await_response(self, message: Callable[[], DecideRequest | EndedJobsMessage]) -> DecideResponse:
        """Send a message and return the response. Start a child if there is none."""
        failure, self._startup_failure = self._startup_failure, None
        try:
            if failure is not None:
                raise failure
            self._server.wait_until_ready(math.inf)
            if self._sent.start != self._server.starts:
                self._sent = SentState(self._server.starts, has_memory=self._memory is None)
            num_ended_jobs = len(self._unsent_ended_jobs)
            response: DecideResponse = self._server.call(message())
        except ChildFailure as error:
            raise DispatcherError(str(error)) from error
        self._unsent_ended_jobs = self._unsent_ended_jobs[num_ended_jobs:]
        self._sent.has_memory = True
        self._sent.is_memory_current = not response.failure
        if response.failure:
            raise DispatcherError(response.failure)
        self._learns, self._memory = response.learns, response.memory
        return response

    def _make_ended_jobs_message(self) -> EndedJobsMessage:
        return EndedJobsMessage(tuple(self._unsent_ended_jobs), None if self._sent.has_memory else self._memory)

    def _make_decide_request(self, snapshot: Snapshot, need: Need) -> DecideRequest:
        table = snapshot.table
        sent_jobs, self._sent.jobs = self._sent.jobs, {job.id: job for job in table.jobs}
        fresh = tuple(
            job for id, job in self._sent.jobs.items() if sent_jobs.get(id) is not job and sent_jobs.get(id) != job
        )
        sent_cluster, self._sent.cluster = self._sent.cluster, snapshot.cluster
        return DecideRequest(
            snapshot.now_s,
            need,
            None if sent_cluster is snapshot.cluster else snapshot.cluster,
            snapshot.free,
            np.fromiter((job.id for job in table.jobs), np.int64, len(table.jobs)),
            fresh,
            {name: getattr(table, name) for name in COLUMNS},
            (table.place_node, table.place_units),
            snapshot.queue,
            snapshot.running,
            self._make_ended_jobs_message(),
        )
