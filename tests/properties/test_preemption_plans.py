"""Test preemption plans: each start fits after its victims end, and needs all of its victims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster
from cpsched.site.preemption_plans import plan_preemption, verify_preemption
from cpsched.site.slurm_victims import VictimOrder, select_slurm_victims, sort_preemption_candidates
from cpsched.site.victims import PreemptibleJob
from cpsched_sim.testing.hypothesis_example_counts import scaled_example_settings
from tests.builders import a_job, a_running
from tests.properties.test_victims import starts

ORDERS = st.builds(VictimOrder, st.booleans(), st.booleans(), st.integers(0, 2))


@scaled_example_settings(400)
@given(start=starts(), order=ORDERS, data=st.data())
def test_every_planned_start_fits_after_its_victims_end(start, order, data):
    cluster, free, request, candidates, _ = start
    ranks = {each.running.job.id: data.draw(st.integers(0, 2)) for each in candidates}
    spared = data.draw(st.sets(st.sampled_from(sorted(ranks)), max_size=2))
    job, amounts = replace(a_job(99), request=request), FreeAmounts(cluster, free)
    plan = plan_preemption(amounts, request, candidates, ranks, order, spared)
    if plan is None:
        assert spared
        return
    assert verify_preemption(1000, cluster, free, job, plan.placement, plan.victims) == []
    eligible = cluster.node_sets[request.node_set]
    jobs = [each.running for each in candidates if any(eligible[node] for node, _ in each.running.placement)]
    assert len(plan.victims) <= len(
        select_slurm_victims(amounts, request, sort_preemption_candidates(jobs, ranks, order), order)
    )
    assert spared.isdisjoint(victim.job.id for victim in plan.victims)
    for victim in plan.victims:
        rest = [each for each in plan.victims if each is not victim]
        assert verify_preemption(1000, cluster, free, job, plan.placement, rest)


def test_verifier_rejects_victim_without_a_node_of_the_start():
    cluster = Cluster.of([[4]] * 2, ["cores"])
    victims = [a_running(a_job(node, 1, 4), ((node, 1),)) for node in range(2)]
    found = verify_preemption(9, cluster, np.zeros((2, 1), np.int64), a_job(7, 1, 4), ((0, 1),), victims)
    assert [str(each) for each in found] == ["job 7: victim 1 holds none of the job's nodes"]


def test_verifier_counts_what_other_starts_need():
    """Another start needs two of the four cores that the victim frees."""
    cluster, victim = Cluster.of([[4]], ["cores"]), a_running(a_job(0, 1, 4), ((0, 1),))
    for units, faults in ((2, 0), (3, 1)):
        found = verify_preemption(9, cluster, np.array([[-2]]), a_job(7, units), ((0, units),), [victim])
        assert len(found) == faults


def test_spared_job_is_no_victim_even_if_slurm_would_stop_it():
    cluster, free = Cluster.of([[4]] * 2, ["cores"]), np.zeros((2, 1), np.int64)
    jobs = [PreemptibleJob(a_running(a_job(node, 1, 4), ((node, 1),)), node) for node in range(2)]

    def victims(*spared):
        amounts = FreeAmounts(cluster, free)
        plan = plan_preemption(amounts, a_job(7, 1, 4).request, jobs, {0: 0, 1: 0}, VictimOrder(), set(spared))
        return plan and [each.job.id for each in plan.victims]

    assert victims() == [0]
    assert victims(0, 1) is None
