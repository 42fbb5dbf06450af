"""Which starts came true, which failed, and who may be behind those that failed.

A start that fails tells of a broken cluster only where nothing nearer explains it. Three things do: the cluster's own
reason lies with the job or its like; it says that other jobs go first; or the chosen nodes have no room any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cpsched.fit import used_by
from cpsched.model import Placement, RunningJob
from cpsched_bridge.likes import likes_of
from cpsched_bridge.ports import Hold, Holder, Observation, PendingJob
from cpsched_bridge.store.ledger import Entry, State, Transition

Suspect = tuple[str, str]
"""Who or what a failure may lie with: a kind, one of `KINDS`, and a name of that kind."""

KINDS = ("user", "account", "partition", "QOS", "shape", "node")


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start that did not come true, with nobody to name as the reason."""

    pending: PendingJob
    suspects: frozenset[Suspect]
    """The job's user, account, partition, QOS and shape; the chosen nodes, and whoever has jobs running there."""
    alone: bool = False
    """Whether something nearer explains it, so that it is one of this job alone, and no sign of a broken cluster."""
    ordinary: bool = False
    """Whether it may happen to anybody: other jobs go first, or the nodes have been taken."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class StartsToCome:
    """What came of starts, as one reading shows it."""

    true: tuple[str, ...] = ()
    """Users of the jobs that were seen running, or to have run, once for each job."""
    failed: tuple[FailedStart, ...] = ()


def came_true(transitions: Sequence[Transition], refused: Collection[int], seen: Observation) -> StartsToCome:
    """What the transitions of a reading make of starts; `refused` were refused by the cluster since the one before.

    A start whose job its owner has held since is in vain as well. A job that is gone, or held by an administrator,
    counts as neither.
    """
    pending = {each.job.id: each for each in seen.pending}
    ended = [transition for transition in transitions if transition.before is State.STARTING]
    failed = [transition.entry for transition in ended if transition.failed]
    found = [_failed(pending[entry.job_id], entry, seen) for entry in failed if entry.job_id in pending]
    found += [_refused(pending[job_id]) for job_id in sorted(refused) if job_id in pending]
    found += [_taken_back(each) for t in ended if (each := pending.get(t.entry.job_id)) and _held_by_owner(each)]
    return StartsToCome(tuple(_users_of_true(ended, seen)), tuple(found))


def _users_of_true(ended: Sequence[Transition], seen: Observation) -> Iterator[str]:
    users = {over.job.id: over.job.user for over in seen.ended}
    users |= {running.job.id: running.job.user for running in seen.running}
    for transition in ended:
        if transition.entry.state in (State.RUNNING, State.ENDED):
            yield users.get(transition.entry.job_id, "")


def _failed(pending: PendingJob, entry: Entry, seen: Observation) -> FailedStart:
    index = {name: node for node, name in enumerate(seen.cluster.node_names)}
    nodes = [(index[name], units) for name, units in entry.nodes if name in index]
    ordinary = pending.outranked or len(nodes) < len(entry.nodes) or not _has_room(pending, tuple(nodes), seen)
    names = frozenset(("node", name) for name, _ in entry.nodes)
    neighbours = frozenset(("user", each.job.user) for each in seen.running if _touches(each, dict(nodes)))
    return FailedStart(pending, _suspects(pending) | names | neighbours, ordinary, ordinary, entry.why)


def _refused(pending: PendingJob) -> FailedStart:
    return FailedStart(pending, _suspects(pending), why="refused")


def _held_by_owner(pending: PendingJob) -> bool:
    return pending.hold is Hold.USER and pending.holder is Holder.OWNER


def _taken_back(pending: PendingJob) -> FailedStart:
    return FailedStart(pending, _suspects(pending), alone=True, why=pending.held_by)


def _has_room(pending: PendingJob, placement: Placement, seen: Observation) -> bool:
    used = used_by(pending.job.request, placement, seen.cluster.capacity)
    return all((seen.free[node] >= amounts).all() for node, amounts in used.items())


def _touches(running: RunningJob, nodes: Mapping[int, int]) -> bool:
    return any(node in nodes for node, _ in running.placement)


def _suspects(pending: PendingJob) -> frozenset[Suspect]:
    return frozenset(zip(KINDS, likes_of(pending.job), strict=False))
