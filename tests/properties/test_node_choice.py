"""Test that dispatchers choose the nodes of each job by the cluster's rule: leaf switches, blocks or stranded GPUs."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched import registry
from cpsched.feasibility import FreeAmounts, verify
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_job, a_snapshot
from tests.properties.test_blocks import blocks
from tests.properties.test_fragmentation import gpu_nodes, plain_choice
from tests.properties.test_leaf_switches import queues, trees


@st.composite
def with_more_jobs(draw, snapshots, *amounts):
    """Draw a snapshot with one queued job, and add jobs with its node set."""
    first = draw(snapshots)
    (head,) = first.queued_jobs()
    rows = draw(st.lists(st.tuples(st.integers(1, 5), *amounts), min_size=2, max_size=5))
    options = {"distinct": head.request.distinct, "node_set": head.request.node_set}
    added = [a_job(10 + i, units, per_unit, **options) for i, (units, *per_unit) in enumerate(rows)]
    return a_snapshot(first.cluster, [head, *added], first.running_jobs())


CHOICES = {
    "leaf switches": trees().filter(lambda drawn: drawn[0].cluster.leaf_switches is not None),
    "blocks": blocks(),
    "GPUs": gpu_nodes().map(lambda snapshot: (snapshot, plain_choice(snapshot, *snapshot.queued_jobs()))),
}
"""A snapshot with one queued job, and its nodes."""
QUEUES = {
    "leaf switches": queues(),
    "blocks": with_more_jobs(blocks().map(lambda drawn: drawn[0]), st.integers(1, 4)),
    "GPUs": with_more_jobs(gpu_nodes(), st.integers(1, 4), st.integers(0, 2)),
}


NAMES = ["easy", "list-reg", "lookahead", "slurm", "pcp19"]


@pytest.mark.parametrize(("name", "rule"), [pair for pair in product(NAMES, CHOICES) if pair != ("slurm", "GPUs")])
def test_single_job_gets_nodes_of_rule(name, rule):
    """No reservation and no other job matters. Without leaf switches, models place last."""
    dispatcher = registry.DISPATCHERS.build(name)

    @scaled_example_settings(100)
    @given(CHOICES[rule])
    def check(drawn):
        snapshot, expected = drawn
        decision = dispatcher.decide(snapshot, "starts")
        assert verify(decision, snapshot) == []
        assert tuple(decision.starts_by_job(snapshot).get(1, ())) == expected

    check()


@pytest.mark.parametrize("rule", QUEUES)
@pytest.mark.parametrize("name", ["greedy", "lookahead"])
def test_later_jobs_choose_among_remaining_nodes(name, rule):
    """The search of `lookahead` also undoes placements. A job that does not fill blocks does not delay others."""
    dispatcher = registry.DISPATCHERS.build(name)

    @scaled_example_settings(200)
    @given(QUEUES[rule])
    def check(snapshot):
        decision = dispatcher.decide(snapshot, "starts")
        assert verify(decision, snapshot) == []
        found, free = decision.starts_by_job(snapshot), FreeAmounts(snapshot.cluster, snapshot.free)
        if name != "greedy" and len(found) < len(snapshot.queue):
            return
        for slot in decision.starts.slots.tolist():
            job = snapshot.table.jobs[slot]
            assert tuple(found[job.id]) == free.find_placement(job.request)
            free.take(job.request, found[job.id])

    check()
