"""Run a dispatcher in its own process, which can be killed at the deadline.

A thread would not be enough: a solver or kernel that holds the interpreter lock blocks every other thread, and a
thread cannot be killed. A process that hangs is killed, and the next decision uses a new one.

- A child starts by importing and compiling. The time limit for a response excludes this work, because callers check
  `not_ready_reason` first. Each kernel is cached on disk. A child that replaces one killed during start-up therefore
  repeats little work.
- A round is sent as columns that the bridge's process has already built. Job objects, with their names, are sent only
  when they are new or changed.
- The predictor, the verification and the ledger stay in the bridge's process.
- Learned state that a dispatcher exports (`Dispatcher.memory`) is sent to the next process. Any other state is lost
  with the process.
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
from cpsched_bridge.errors import DispatcherError
from cpsched_bridge.socket_child_process import STALL_TIMEOUT_S, SocketChildProcess

_EXIT_WAIT_S = 10.0
"""Seconds that a disconnected process may take to end, during which its compiler cleans up."""
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
    cluster: tuple[Any, ...] | None
    """The fields of a `Cluster`, or None if they are unchanged."""
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
class WorkerStartupProgress:
    """A description of a starting child's progress, or "" when the child is ready."""

    words: str = ""


@dataclass(frozen=True, slots=True)
class DecideResponse:
    """The response to a message, with the requested decision or the error."""

    decision: Any = None
    learns: bool = False
    memory: Any = None
    failure: str = ""


class IsolatedDispatcher(Dispatcher):
    """A proxy for the dispatcher of `spec` in a child process, started immediately.

    The child is replaced after it dies or is interrupted. All calls must come from one thread. Any exception that
    interrupts a call, for example the exception of `run_within_time_limit`, kills the child.
    """

    def __init__(
        self,
        spec: PolicySpec,
        module: str = WORKER_MODULE,
        compiles: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._init_message, self._module, self._clock = WorkerInit(spec, compiles), module, clock
        self._child: SocketChildProcess | None = None
        self._channel: Connection[Any, Any] | None = None
        self._unsent_ended_jobs: list[EndedJob] = []
        self._memory: Any = None
        self._is_memory_current = False
        """Whether `_memory`, together with `_unsent_ended_jobs`, represents the child's current memory."""
        self._learns = True
        self._startup_step = ""
        """The step that a starting child is running."""
        self._progress_s = 0.0
        """Clock time of a starting child's last progress report."""
        self._startup_failure = ""
        """Why a child could not start. The next request raises this as an error."""
        self.starts = 0
        """Number of children started so far."""
        self._start_child()

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether the dispatcher learns, according to its last response."""
        return self._learns

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None if there is no child."""
        return None if self._child is None else self._child.pid

    def not_ready_reason(self) -> str | None:
        """Return the start-up step that the child is running, or None. Never block.

        None means that the child is ready or that an error is pending. Start a child if there is none. Kill a child
        that has made no progress for `STALL_TIMEOUT_S` seconds. If a child died or was killed during start-up, the next
        request raises an error.
        """
        if self._startup_failure:
            return None
        try:
            if self._channel is None:
                self._start_child()
            while self._startup_step and self._channel is not None and self._channel.poll():
                self._record_startup_progress(self._channel.recv())
        except (EOFError, OSError) as error:
            self._startup_failure = self._close_and_get_exit_reason(error)
        if self._startup_step and self._clock() - self._progress_s > STALL_TIMEOUT_S:
            self._startup_failure = (
                f"its process hangs at this step: {self._startup_step} (no progress within {STALL_TIMEOUT_S:g} s)"
            )
            self.close()
        return self._startup_step or None

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
        if self._unsent_ended_jobs or not self._is_memory_current:
            self._send_and_await_response(self._make_ended_jobs_message)
        return self._memory

    def recall(self, memory: Any) -> None:
        """Kill the child, and start the next child with this memory."""
        self.close()
        self._memory = memory

    def close(self) -> int | None:
        """Kill the child. Return its exit status, or None if there is none."""
        self._is_memory_current, self._startup_step = False, ""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status

    def _start_child(self) -> None:
        self._child = SocketChildProcess(self._module)
        self._channel = Connection(self._child.channel.detach())
        self._channel.send(self._init_message)
        self._startup_step, self._progress_s = "the dispatcher's process is starting", self._clock()
        self._known: dict[int, Job] = {}
        self._cluster: Cluster | None = None
        self._recalled = self._memory is None
        self.starts += 1

    def _record_startup_progress(self, progress: WorkerStartupProgress) -> None:
        self._startup_step, self._progress_s = progress.words, self._clock()

    def _close_and_get_exit_reason(self, error: Exception) -> str:
        """Return why the child disconnected, as text."""
        if self._child is not None:
            self._child.is_alive(_EXIT_WAIT_S)  # return the child's own exit status, not the status after a kill
        return f"its process died (exit status {self.close()}): {error}"

    def _send_and_await_response(self, message: Callable[[], DecideRequest | EndedJobsMessage]) -> DecideResponse:
        """Send a message and return the response. Start a child if there is none."""
        failure, self._startup_failure = self._startup_failure, ""
        if failure:
            raise DispatcherError(failure)
        try:
            if self._channel is None:
                self._start_child()
            assert self._channel is not None
            while self._startup_step:
                self._record_startup_progress(self._channel.recv())
            ended_jobs = len(self._unsent_ended_jobs)
            self._channel.send(message())
            answer: DecideResponse = self._channel.recv()
        except (EOFError, OSError) as error:
            raise DispatcherError(self._close_and_get_exit_reason(error)) from error
        except BaseException:
            self.close()
            raise
        self._recalled = True
        self._unsent_ended_jobs = self._unsent_ended_jobs[ended_jobs:]
        self._is_memory_current = not answer.failure
        if answer.failure:
            raise DispatcherError(answer.failure)
        self._learns, self._memory = answer.learns, answer.memory
        return answer

    def _make_ended_jobs_message(self) -> EndedJobsMessage:
        return EndedJobsMessage(tuple(self._unsent_ended_jobs), None if self._recalled else self._memory)

    def _make_decide_request(self, snapshot: Snapshot, need: Need) -> DecideRequest:
        table = snapshot.table
        known, self._known = self._known, {job.id: job for job in table.jobs}
        fresh = tuple(job for id, job in self._known.items() if known.get(id) is not job and known.get(id) != job)
        known_cluster, self._cluster = self._cluster, snapshot.cluster
        return DecideRequest(
            snapshot.now_s,
            need,
            None if known_cluster is snapshot.cluster else list_cluster_field_values(snapshot.cluster),
            snapshot.free,
            np.fromiter((job.id for job in table.jobs), np.int64, len(table.jobs)),
            fresh,
            {name: getattr(table, name) for name in COLUMNS},
            (table.place_node, table.place_units),
            snapshot.queue,
            snapshot.running,
            self._make_ended_jobs_message(),
        )


def list_cluster_field_values(cluster: Cluster) -> tuple[Any, ...]:
    """Return the values of a `Cluster`'s fields without its computed, cached values."""
    sets, columns = (cluster.node_sets, cluster.node_set_names), (cluster.weights, cluster.leaf_switches)
    return cluster.node_names, cluster.resources, cluster.capacity, *sets, cluster.epoch_s, *columns
