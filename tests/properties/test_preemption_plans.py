"""Test preemption plans: each start fits after its victims end, and the bridge and the simulator plan the same."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster, Request
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.preemption import PreemptionRules, VictimOrder
from cpsched.site.preemption_plans import (
    PreemptionSearch,
    count_occupied_nodes,
    select_slurm_victims,
    sort_preemption_candidates,
    verify_preemption,
)
from cpsched.site.victims import PreemptibleJob
from cpsched_bridge.adapters.slurm.policy.preemptors import PreemptorsLeftToSlurm
from cpsched_bridge.ports import Hold, Observation, PendingJob, PreemptionOptions
from cpsched_sim.cluster.preemption import SimulatedPreemption
from cpsched_sim.simulation import simulate
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_cluster, a_job, a_running, a_slurm_job
from tests.properties.test_victims import starts
from tests.unit.sim.cluster.test_preemption import BY_QOS, workload

ORDERS = st.builds(VictimOrder, st.booleans(), st.booleans(), st.integers(0, 2))
RULES = PreemptionRules("qos", "requeue", {"high": frozenset({""})})
HIGH = a_job(99, qos="high")


def search_of(cluster, free, candidates, order=VictimOrder()):
    return PreemptionSearch(FreeAmounts(cluster, free), PendingJobLimitsAndUsage(), RULES, order, lambda: candidates)


@scaled_example_settings(400)
@given(start=starts(), order=ORDERS, choose=st.booleans(), data=st.data())
def test_every_planned_start_fits_after_its_victims_end(start, order, choose, data):
    cluster, free, request, drawn, _ = start
    candidates = [replace(each, rank=data.draw(st.integers(0, 2))) for each in drawn]
    spared = data.draw(st.sets(st.sampled_from([each.running.job.id for each in candidates]), max_size=2))
    job = replace(HIGH, request=request)
    plan = search_of(cluster, free, candidates, order).plan_start(job, choose, spared)
    run = a_running(job, plan.placement, 1000)
    assert verify_preemption(run, cluster, free, plan.stopped) == []
    eligible = cluster.node_sets[request.node_set]
    jobs = [each for each in candidates if any(eligible[node] for node, _ in each.running.placement)]
    theirs = select_slurm_victims(FreeAmounts(cluster, free), request, sort_preemption_candidates(jobs, order), order)
    if not plan.is_chosen:
        assert list(plan.victims) == theirs
        assert spared or not choose
        return
    assert len(plan.victims) <= len(theirs)
    assert sum(each.price for each in plan.victims) <= sum(each.price for each in theirs)
    assert spared.isdisjoint(each.job.id for each in plan.stopped)
    for victim in plan.stopped:
        rest = [each for each in plan.stopped if each is not victim]
        assert verify_preemption(run, cluster, free, rest)


GPU_NODES = Cluster.of([[4, 2]] * 3, ["cores", "gpus"])
REQUESTS = st.builds(Request, st.integers(1, 6), st.sampled_from([(1, 0), (1, 1), (4, 0)]), st.just(0), st.booleans())
ROWS = st.lists(
    st.tuples(st.integers(0, 200), REQUESTS, st.integers(1, 150), st.sampled_from(["low", "mid", "high"])),
    min_size=3, max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))  # fmt: skip


def observation_of(snapshot, limits):
    table = snapshot.table
    jobs = [replace(table.jobs[slot], priority=int(table.priority[slot])) for slot in snapshot.queue.tolist()]
    pending = [PendingJob(job, Hold.PLUGIN) for job in jobs]
    return Observation(
        snapshot.now_s, snapshot.cluster, snapshot.free.copy(), tuple(pending), snapshot.running_jobs(), limits=limits
    )


def record_of(running, now_s, every_s):
    saved_s = running.start_s + (now_s - running.start_s) // every_s * every_s
    return a_slurm_job(
        running.job.id, "RUNNING", qos=running.job.qos, partition=running.job.queue, comment=f"checkpoint={saved_s}",
        is_requeueable=True, is_batch_job=True,
    )  # fmt: skip


@scaled_example_settings(100)
@given(rows=ROWS, choose=st.booleans(), has_limit=st.booleans(), mode=st.sampled_from(["requeue", "cancel"]),
       order=ORDERS)  # fmt: skip
def test_bridge_and_simulator_plan_the_same(rows, choose, has_limit, mode, order):
    """In each round of a replay, the adapter's offers and withheld amounts are the simulator's preemptions."""
    options = f', mode: {mode}, exempt_time: "00:00:01", checkpoint_every: "00:00:20"'
    options += f", youngest_first: {order.youngest_first}, strict_order: {order.strict_order}".lower()
    options += f", reorder_count: {order.reorder_count}, victims: {'least-work' if choose else 'slurm'}"
    policy = (BY_QOS % options).replace("preempt: [low, mid]", "preempt: [low, mid], limits: { MaxJobsPU: 2 }")
    made = workload(rows, policy if has_limit else BY_QOS % options, GPU_NODES)

    def plan(preemption, snapshot, limits):
        seen = observation_of(snapshot, limits)
        records = [record_of(each, snapshot.now_s, 20) for each in seen.running]
        seen = PreemptorsLeftToSlurm().leave(seen, records, made.site.policy, PreemptionOptions() if choose else None)
        planned = simulated(preemption, snapshot, limits)
        stops = [each for each in planned if each.victims]
        ids = [job.id for job in snapshot.table.jobs]
        assert sorted(each.job_id for each in seen.unmanaged) == sorted(ids[each.slot] for each in stops)
        free = FreeAmounts(snapshot.cluster, snapshot.free)
        for each in stops:
            free.take(snapshot.table.jobs[each.slot].request, each.placement)
        assert np.array_equal(seen.free, free.free.clip(0))
        offers = {each.pending.job.id: (each.placement, {v.job_id for v in each.victims}) for each in seen.preemptions}
        expected = {ids[each.slot]: (each.placement, {ids[run.slot] for run in each.victims}) for each in stops}
        assert offers == (expected if choose else {})
        return planned

    simulated = SimulatedPreemption.plan
    with patch.object(SimulatedPreemption, "plan", plan):
        simulate(made, "easy", settings={"order": "priority"})


def test_start_that_fits_after_earlier_victims_end_stops_no_further_job():
    """The first start needs half of its victim's node. The third one does not fit there any more."""
    cluster = a_cluster(2)
    candidates = [PreemptibleJob(a_running(a_job(node, 1, 4), ((node, 1),)), node) for node in range(2)]
    search = search_of(cluster, np.zeros((2, 1), np.int64), candidates)
    plans = [search.plan_start(a_job(id, 1, 2, qos="high"), True) for id in (7, 8, 9)]
    assert [plan and [each.job.id for each in plan.stopped] for plan in plans] == [[0], None, [1]]


def test_waiting_start_reserves_free_amounts_that_it_will_need():
    """Job 8 waits for two cores of node 0, and takes the free core of node 1, so that job 9 stops another job."""
    candidates = [
        PreemptibleJob(a_running(a_job(node, 1, cores), ((node, 1),)), 0) for node, cores in enumerate((4, 3))
    ]
    search = search_of(a_cluster(2), np.array([[0], [1]]), candidates)
    plans = [search.plan_start(a_job(id, units, each, qos="high"), False) for id, units, each in
             ((7, 1, 2), (8, 3, 1), (9, 1, 1))]  # fmt: skip
    assert [plan and [each.job.id for each in plan.stopped] for plan in plans] == [[0], None, [1]]


def test_share_of_scarcest_resource_is_what_a_job_occupies():
    """On nodes with 64 cores and 4 GPUs, a job with a core and 4 GPUs occupies a whole node."""
    cluster = a_cluster(2, 64, gpus=(4, 4))
    requests = [Request(1, per_unit) for per_unit in ((1, 4), (32, 1), (0, 2))]
    assert [count_occupied_nodes(request, ((1, 1),), cluster) for request in requests] == [1.0, 0.5, 0.5]


def test_verifier_rejects_victim_without_a_node_of_the_start():
    cluster = Cluster.of([[4]] * 2, ["cores"])
    victims = [a_running(a_job(node, 1, 4), ((node, 1),)) for node in range(2)]
    found = verify_preemption(a_running(a_job(7, 1, 4), ((0, 1),), 9), cluster, np.zeros((2, 1), np.int64), victims)
    assert [str(each) for each in found] == ["job 7: victim 1 holds none of the job's nodes"]


def test_verifier_counts_what_other_starts_need():
    """Another start needs two of the four cores that the victim frees."""
    cluster, victim = Cluster.of([[4]], ["cores"]), a_running(a_job(0, 1, 4), ((0, 1),))
    runs = [a_running(a_job(7, units), ((0, units),), 9) for units in (2, 3)]
    assert [len(verify_preemption(run, cluster, np.array([[-2]]), [victim])) for run in runs] == [0, 1]


def test_spared_job_is_no_victim_even_if_slurm_would_stop_it():
    """The plan then has Slurm's victims, and is not the bridge's."""
    cluster, free = Cluster.of([[4]] * 2, ["cores"]), np.zeros((2, 1), np.int64)
    jobs = [PreemptibleJob(a_running(a_job(node, 1, 4), ((node, 1),)), 9 - node) for node in range(2)]
    start = a_job(7, 1, 4, qos="high")
    plans = [search_of(cluster, free, jobs).plan_start(start, True, spared) for spared in ((), (0,), (1,), (0, 1))]
    victims = [([each.job.id for each in plan.stopped], plan.is_chosen) for plan in plans]
    assert victims == [([1], True), ([1], True), ([0], True), ([0], False)]
