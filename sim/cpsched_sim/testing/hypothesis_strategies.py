"""Random clusters, queues and traces, and the number of examples of a property.

They have several resources, distinct-node and whole-node jobs, and node sets.

`snapshots` and `traces` are small and varied, so that counterexamples shrink to readable ones. `full_clusters` are
full clusters with long queues, for faults that do not occur on small clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from cpsched.feasibility import amounts_by_node, units_fitting_by_node, why_infeasible
from cpsched.model import Cluster, IntArray, Job, Placement, Request, RunningJob, Snapshot
from cpsched_sim.traces.trace_jobs import TraceJob

DEFAULT_EXAMPLES = 100
"""Number of examples in Hypothesis's default profile. With this profile, each property uses its own number."""


def scaled_example_settings(many: int, **further: Any) -> settings:
    """Return settings for a property test with `many` examples and no deadline.

    The active Hypothesis profile scales `many`: `max_examples=25` (`pytest --hypothesis-profile NAME`) reduces it to a
    quarter, but to no less than three. `further` contains other Hypothesis settings.
    """
    return settings(max_examples=max(3, many * settings().max_examples // DEFAULT_EXAMPLES), deadline=None, **further)


Draw = Callable[[Any], Any]

NOW_S = 1000


@st.composite
def clusters(draw: Draw) -> Cluster:
    """Draw clusters of 1 to 6 nodes with 1 to 3 resources.

    Some nodes are equal, and one node set contains only some nodes.
    """
    resources = draw(st.integers(1, 3))
    kinds = draw(st.lists(st.tuples(*[st.integers(0, 6)] * resources), min_size=1, max_size=2))
    rows = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    some = draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    sets = {"some": sorted(some)} if draw(st.booleans()) else None
    return Cluster.of(rows, [f"r{i}" for i in range(resources)], node_sets=sets)


@st.composite
def requests(draw: Draw, cluster: Cluster) -> Request:
    """Draw requests, most of which are small. A few can never fit."""
    amounts = draw(
        st.tuples(*[st.integers(0, 4)] * len(cluster.resources)).filter(any)
        if len(cluster.resources) > 1
        else st.tuples(st.integers(1, 4))
    )
    return Request(
        units=draw(st.integers(1, 5)),
        per_unit=amounts,
        distinct=draw(st.integers(0, 4)) == 0,
        exclusive=draw(st.integers(0, 5)) == 0,
        node_set=draw(st.integers(0, len(cluster.node_sets) - 1)),
    )


@st.composite
def jobs(draw: Draw, cluster: Cluster, id: int, submit_s: Any = st.just(0)) -> Job:
    """Draw jobs from users x and y in queues a and b."""
    return Job(
        id,
        draw(submit_s),
        draw(st.integers(1, 60)),
        draw(requests(cluster)),
        user=draw(st.sampled_from("xy")),
        name=draw(st.sampled_from(["run1", "run2", "fit"])),
        queue=draw(st.sampled_from("ab")),
    )


def first_fit_placement(request: Request, cluster: Cluster, free: IntArray) -> Placement | None:
    """Return a request's placement on the first nodes that fit its units, or None."""
    fits, left, placement = units_fitting_by_node(request, cluster, free), request.units, []
    for node, most in enumerate(fits.tolist()):
        if most and left:
            placement.append((node, min(most, left)))
            left -= min(most, left)
    return None if left else tuple(placement)


def subtract_placement(request: Request, placement: Placement, cluster: Cluster, free: IntArray) -> None:
    """Subtract a placement from `free`."""
    for node, amounts in amounts_by_node(request, placement, cluster.capacity).items():
        free[node] -= amounts


@st.composite
def snapshots(draw: Draw, most: int = 8) -> Snapshot:
    """Draw snapshots with running jobs and a queue in order of arrival."""
    cluster = draw(clusters())
    free, running = cluster.capacity.copy(), []
    for id in range(100, 100 + draw(st.integers(0, 5))):
        job = draw(jobs(cluster, id))
        placement = first_fit_placement(job.request, cluster, free)
        if placement is not None:
            subtract_placement(job.request, placement, cluster, free)
            running.append(RunningJob(job, NOW_S - draw(st.integers(0, job.walltime_s - 1)), placement))
    queue = [draw(jobs(cluster, id, st.integers(0, NOW_S))) for id in range(draw(st.integers(1, most)))]
    queue.sort(key=lambda job: job.submit_s)
    estimates = {job.id: draw(st.integers(1, job.walltime_s)) for job in queue}
    estimates |= {each.job.id: each.job.walltime_s for each in running}
    return Snapshot.of(NOW_S, cluster, free, queue, running, estimates)


@st.composite
def traces(draw: Draw, most: int = 25) -> tuple[Cluster, list[TraceJob]]:
    """Draw a cluster, and jobs in order of arrival. Some jobs reach their walltime."""
    cluster = draw(clusters())
    items, submit_s = [], 0
    for id in range(1, 1 + draw(st.integers(1, most))):
        submit_s += draw(st.sampled_from([0, 0, 1, 5, 20]))
        job = draw(jobs(cluster, id, st.just(submit_s)))
        items.append(TraceJob(job, draw(st.integers(1, job.walltime_s))))
    return cluster, items


@st.composite
def full_clusters(draw: Draw, most: int = 60) -> Snapshot:
    """Draw full clusters of unequal nodes, with 20 to `most` waiting jobs.

    The jobs have all sharing rules, and some are equal.

    Running jobs occupy all nodes except the last two. In half of the examples, they leave so little free on each node
    that hardly any job fits. Then more requests fail than a plan stores. Ends, estimates and submissions repeat, so
    that ties often decide the order. The example is derived from one drawn number, because drawing sixty jobs one by
    one is slow.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, resources = int(random.integers(3, 24)), int(random.integers(1, 4))
    kinds = random.integers(2, 7, (int(random.integers(1, 4)), resources))
    rows = kinds[random.integers(0, len(kinds), size)]
    cluster = Cluster.of(rows.tolist(), [f"r{i}" for i in range(resources)], node_sets={"half": range(0, size, 2)})

    def random_job(id: int, units: int, kind: int) -> Job:
        amounts = random.integers(0, 4, resources)
        amounts[0] = max(1, amounts[0])
        request = Request(units, tuple(amounts.tolist()), kind == 1, kind == 2, int(random.integers(0, 5) == 0))
        return Job(id, int(random.integers(0, 5)) * 100, int(random.integers(1, 20)), request)

    free, running = cluster.capacity.copy(), []
    crumbs = random.integers(0, 2, cluster.capacity.shape) * (random.random() < 0.5)
    free -= crumbs
    idle = free[size - 2 :].copy()
    free[size - 2 :] = 0
    for id in range(1000, 1000 + 4 * size):
        small = random_job(id, 1, 0)
        placement = first_fit_placement(small.request, cluster, free)
        if placement is not None:
            subtract_placement(small.request, placement, cluster, free)
            running.append(RunningJob(small, NOW_S - int(random.integers(0, small.walltime_s)), placement))
    free[size - 2 :] = idle
    free += crumbs
    queue = [random_job(id, int(random.integers(1, 2 * size)), int(random.integers(0, 6))) for id in range(1, 1 + most)]
    queue = sorted(queue[: int(random.integers(20, most + 1))], key=lambda job: job.submit_s)
    estimates = {each.id: int(random.integers(1, each.walltime_s + 1)) for each in queue}
    estimates |= {each.job.id: each.job.walltime_s for each in running}
    return Snapshot.of(NOW_S, cluster, free, queue, running, estimates)


def can_run(cluster: Cluster, job: Job) -> bool:
    """Return whether the request fits on the empty cluster."""
    return why_infeasible(job.request, cluster) is None


__all__ = ["NOW_S", "Snapshot", "can_run", "clusters", "full_clusters", "jobs", "snapshots", "traces"]
