"""What every `Backend` promises in its docstrings, as checks that run on any cluster.

`tests/integration` runs them on the simulated clusters, and `tests/slurm` on a real one with each transport. Each check
starts with three pending jobs of one core, held for the bridge, on idle nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from cpsched.model import EndedJob
from cpsched_bridge.ports import Backend, Hold, Lease, Observation, Outcome, StartOrder, UndoOrder

MAX_READINGS = 150
UNKNOWN_JOB = 987_654
LEASE = Lease("aaaa", "one", 1, "here:/state")


class Site(Protocol):
    """A cluster with three such jobs."""

    def connect(self) -> Backend:
        """Return a new backend."""
        ...

    def wait(self) -> None:
        """Let the cluster take its next step."""
        ...

    def end(self, job_id: int) -> None:
        """End a running job."""
        ...


CHECKS: dict[str, Callable[[Site], None]] = {}


def check(promise: Callable[[Site], None]) -> Callable[[Site], None]:
    """Add a promise to `CHECKS`."""
    CHECKS[promise.__name__] = promise
    return promise


def observe_until(
    site: Site, backend: Backend, holds: Callable[[Observation], bool], pinned: Collection[int] = ()
) -> Observation:
    for _ in range(MAX_READINGS):
        seen = backend.observe(pinned)
        if holds(seen):
            return seen
        site.wait()
    raise AssertionError(f"not within {MAX_READINGS} readings; the last is {seen}")


def order(seen: Observation, job: int, node: int) -> StartOrder:
    """Return the order to start a pending job on a node."""
    pending = next(each for each in seen.pending if each.job.id == job)
    return StartOrder(pending.job, ((seen.cluster.node_names[node], 1),), pending.start_settings)


def begin(site: Site) -> tuple[Backend, Observation, list[int]]:
    """Return a backend, its first observation, and the ids of the jobs."""
    backend = site.connect()
    seen = backend.observe()
    return backend, seen, sorted(each.job.id for each in seen.pending)


def run_on_last_node(site: Site, backend: Backend, seen: Observation, job: int) -> Observation:
    start = order(seen, job, len(seen.free) - 1)
    assert list(backend.start([start])) == [Outcome(job, "done")]
    return observe_until(site, backend, lambda now: job in {each.job.id for each in now.running})


def results(outcomes: Sequence[Outcome]) -> list[tuple[int, str]]:
    return [(each.job_id, each.result) for each in outcomes]


def undo(*jobs: int) -> list[UndoOrder]:
    return [UndoOrder(job, pinned=True) for job in jobs]


@check
def observation_shows_held_jobs_and_idle_nodes(site: Site) -> None:
    _, seen, jobs = begin(site)
    assert len(jobs) == 3
    assert [(each.hold, each.pinned, each.job.ineligible) for each in seen.pending] == [(Hold.PLUGIN, False, None)] * 3
    assert (seen.running, seen.unmanaged, seen.lease) == ((), (), None)
    assert seen.free.tolist() == seen.cluster.capacity.tolist()


@check
def start_runs_job_on_its_node_alone(site: Site) -> None:
    backend, before, (job, *others) = begin(site)
    seen = run_on_last_node(site, backend, before, job)
    (running,) = seen.running
    last = len(before.free) - 1
    assert (running.job.id, running.placement) == (job, ((last, 1),))
    assert (before.free - seen.free)[last].tolist() == list(running.job.request.per_unit)
    assert sorted(each.job.id for each in seen.pending) == others


@check
def start_refuses_job_that_runs_or_is_unknown(site: Site) -> None:
    """The outcomes are in the order of the orders, and the others start."""
    backend, before, (running, waiting, _) = begin(site)
    run_on_last_node(site, backend, before, running)
    last = len(before.free) - 1
    again, first = order(before, running, last - 1), order(before, waiting, last - 1)
    unknown = replace(again, job=replace(again.job, id=UNKNOWN_JOB))
    assert results(backend.start([unknown, first, again])) == [
        (UNKNOWN_JOB, "refused"), (waiting, "done"), (running, "refused"),
    ]  # fmt: skip
    seen = observe_until(site, backend, lambda now: len(now.running) == 2)
    assert {each.job.id: each.placement for each in seen.running} == {
        running: ((last, 1),), waiting: ((last - 1, 1),),
    }  # fmt: skip


@check
def hold_refuses_running_job(site: Site) -> None:
    backend, before, (running, waiting, _) = begin(site)
    run_on_last_node(site, backend, before, running)
    assert results(backend.hold(undo(running, waiting))) == [(running, "refused"), (waiting, "done")]
    seen = backend.observe()
    assert [each.job.id for each in seen.running] == [running]
    assert waiting in {each.job.id for each in seen.pending if each.hold in (Hold.PLUGIN, Hold.ADMIN)}


@check
def commands_are_idempotent(site: Site) -> None:
    backend, _, (job, other, _) = begin(site)
    for command in (backend.hold, backend.unpin, backend.hold):
        assert results(command(undo(job, other))) == [(job, "done"), (other, "done")]
    seen = backend.observe()
    assert [(each.hold, each.pinned) for each in seen.pending] == [(Hold.PLUGIN, False)] * 3


@check
def release_works_without_observation(site: Site) -> None:
    """So that `release-all` can release the jobs of a dead bridge. Jobs that are unknown are refused."""
    _, _, (job, *others) = begin(site)
    backend = site.connect()
    assert results(backend.release(undo(job, UNKNOWN_JOB))) == [(job, "done"), (UNKNOWN_JOB, "refused")]
    seen = observe_until(
        site, backend, lambda now: job not in {p.job.id for p in now.pending if p.hold is not Hold.NONE}
    )
    assert sorted(each.job.id for each in seen.pending if each.hold is Hold.PLUGIN) == others


@check
def lease_is_replaced_only_as_expected(site: Site) -> None:
    backend = site.connect()
    later, other = replace(LEASE, beat=2), Lease("bbbb", "two", 1, "there:/state", epoch=7, standby="aaaa")
    steps = [
        (LEASE, later),
        (LEASE, None),
        (other, None),
        (later, other),
        (later, LEASE),
        (other, LEASE),
        (other, later),
    ]
    assert [backend.acquire_lease(*step) for step in steps] == [False, True, False, False, True, False, True]
    assert site.connect().observe().lease == other


@check
def ended_job_is_reported_once(site: Site) -> None:
    backend, before, (job, *_) = begin(site)
    run_on_last_node(site, backend, before, job)
    site.end(job)
    reported: list[EndedJob] = []

    def has_ended(seen: Observation) -> bool:
        reported.extend(seen.ended)
        return bool(reported) and not seen.running

    observe_until(site, backend, has_ended)
    site.wait()
    reported.extend(backend.observe().ended)
    (ended,) = reported
    assert (ended.job.id, ended.job.user) == (job, before.pending[0].job.user)
    assert before.now_s <= ended.start_s <= ended.end_s
