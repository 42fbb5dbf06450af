"""A dispatcher in a process of its own, which can be killed: no call into compiled code outlives the deadline.

A thread would not do: a solver or a kernel that holds the interpreter's lock keeps every other thread from running,
and nothing can end a thread. A process that hangs is killed, and the next decision gets a new one.

- Jobs are sent once, and again when they change; so a round costs what is new, and ids.
- Predictor, verification and ledger stay on this side.
- What a dispatcher has learned and tells (`Dispatcher.memory`) is given to the process that follows. What it does not
  tell dies with the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Cluster, Decision, EndedJob, IntArray, Job, Need, Placement, Snapshot
from cpsched.overrun import Overrun
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.children import Child
from cpsched_bridge.errors import DispatcherFailed

_LAST_BREATH_S = 1.0
MODULE = "cpsched_bridge.program.dispatcher_process"


@dataclass(frozen=True, slots=True)
class Known:
    """What the dispatcher is to know before anything else; sent alone, it asks for the dispatcher's memory."""

    lessons: tuple[EndedJob, ...]
    """What ended since it was last told."""
    memory: Any = None
    """What an earlier process had in memory; only in the first message to a new process."""


@dataclass(frozen=True, slots=True)
class Question:
    """One round, as it is sent: what changed since the round before, and the rest by job id."""

    now_s: int
    need: Need
    cluster: tuple[Any, ...] | None
    """The fields of a `Cluster`; None: the same as before."""
    free: IntArray
    jobs: tuple[Job, ...]
    """Jobs that are new, or differ from what was sent before."""
    queue: IntArray
    """Ids of the eligible jobs, in order of arrival."""
    running: tuple[tuple[int, int, Placement], ...]
    """Id, start second and placement, in the order of the table."""
    estimate_s: IntArray
    """For the jobs of `queue`, then for those of `running`."""
    known: Known


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a message: a decision where one was asked for, or the words of what went wrong."""

    decision: Any = None
    learns: bool = False
    memory: Any = None
    failure: str = ""


class Apart(Dispatcher):
    """Asks the dispatcher of `spec` in a child process; started now, replaced when it dies or is interrupted.

    Calls come from one thread. A call that is interrupted by whatever exception, `within`'s among them, kills the
    child.
    """

    def __init__(self, spec: PolicySpec, overrun: Overrun, module: str = MODULE) -> None:
        self._spec, self._overrun, self._module = spec, overrun, module
        self._child: Child | None = None
        self._channel: Connection[Any, Any] | None = None
        self._lessons: list[EndedJob] = []
        self._memory: Any = None
        self._current = False
        """Whether `_memory` is what the child knows now, but for `_lessons`."""
        self._learns = True
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

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """The child's decision. Raises `DispatcherFailed` where the child has died or says what went wrong."""
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
        self._current = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status

    def _begin(self) -> None:
        self._child = Child(self._module)
        self._channel = Connection(self._child.channel.detach())
        self._channel.send((self._spec, self._overrun))
        self._known: dict[int, Job] = {}
        self._cluster: Cluster | None = None
        self._recalled = self._memory is None
        self.starts += 1

    def _ask(self, message: Callable[[], Question | Known]) -> Answer:
        """The child's answer; a child is started if there is none."""
        try:
            if self._channel is None:
                self._begin()
            assert self._channel is not None
            lessons = len(self._lessons)
            self._channel.send(message())
            answer: Answer = self._channel.recv()
        except (EOFError, OSError) as error:
            if self._child is not None:
                self._child.alive(_LAST_BREATH_S)  # so that its own exit status is told, not that of the kill
            raise DispatcherFailed(f"its process died (exit status {self.close()}): {error}") from error
        except BaseException:
            self.close()
            raise
        self._recalled = True
        self._lessons = self._lessons[lessons:]
        self._current = not answer.failure
        if answer.failure:
            raise DispatcherFailed(answer.failure)
        self._learns, self._memory = answer.learns, answer.memory
        return answer

    def _to_be_known(self) -> Known:
        return Known(tuple(self._lessons), None if self._recalled else self._memory)

    def _question(self, snapshot: Snapshot, need: Need) -> Question:
        table = snapshot.table
        waiting, active = snapshot.queue.tolist(), sorted(snapshot.running.tolist())
        present = [table.jobs[slot] for slot in (*waiting, *active)]
        fresh = tuple(job for job in present if self._known.get(job.id) != job)
        self._known = {job.id: job for job in present}
        known_cluster, self._cluster = self._cluster, snapshot.cluster
        return Question(
            snapshot.now_s,
            need,
            None if known_cluster is snapshot.cluster else fields_of(snapshot.cluster),
            snapshot.free,
            fresh,
            np.fromiter((job.id for job in present[: len(waiting)]), np.int64, len(waiting)),
            tuple((table.jobs[s].id, int(table.start_s[s]), snapshot.placement_of(s)) for s in active),
            table.estimate_s[[*waiting, *active]],
            self._to_be_known(),
        )


def fields_of(cluster: Cluster) -> tuple[Any, ...]:
    """What a `Cluster` is made of, without what it has worked out meanwhile."""
    return cluster.node_names, cluster.resources, cluster.capacity, cluster.node_sets, cluster.node_set_names
