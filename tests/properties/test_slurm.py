"""Compare the twin of Slurm's scheduler with a plain reference, and with textbook schedulers in limiting cases."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.dispatchers.slurm.scheduler_parameters import SchedulerParameters
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.model import Cluster, Snapshot
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.testing.dispatcher_properties import build_policy_for_dispatcher
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings, snapshots, traces
from tests.builders import a_job, a_running, a_snapshot
from tests.properties import reference, slurm_reference

FEW = st.sampled_from([0, 0, 1, 2, 4])


@st.composite
def parameters(draw, **fixed):
    """Draw parameters that are small enough to matter in a small world, with most limits off."""
    return SchedulerParameters(
        **{
            "bf_busy_nodes": draw(st.booleans()),
            "bf_interval": draw(st.sampled_from([-1, 1, 7, 30])),
            "bf_job_part_count_reserve": draw(FEW),
            "bf_max_job_assoc": draw(FEW),
            "bf_max_job_part": draw(FEW),
            "bf_max_job_start": draw(FEW),
            "bf_max_job_test": draw(st.sampled_from([1, 3, 500])),
            "bf_max_job_user": draw(FEW),
            "bf_max_job_user_part": draw(FEW),
            "bf_min_age_reserve": draw(st.sampled_from([0, 0, 5, 500])),
            "bf_min_prio_reserve": draw(st.sampled_from([0, 0, 2])),
            "bf_node_space_size": draw(st.sampled_from([None, None, 2, 4])),
            "bf_resolution": draw(st.sampled_from([1, 7, 20])),
            "bf_window": draw(st.sampled_from([1, 2, 1440])),
            "default_queue_depth": draw(st.sampled_from([0, 1, 3, 100])),
            "partition_job_depth": draw(FEW),
            "sched_max_job_start": draw(FEW),
            "batch_sched_delay": 0,
        }
        | fixed
    )


def text_of(rules: SchedulerParameters) -> str:
    """Return the parameters in the format of slurm.conf."""
    given = {name: value for name, value in dataclasses.asdict(rules).items() if value is not None}
    flags = [name for name, value in given.items() if value is True]
    return ",".join([*flags, *(f"{name}={value}" for name, value in given.items() if not isinstance(value, bool))])


def ranked(snapshot: Snapshot, ranks: list[int]) -> Snapshot:
    """Return the snapshot with each queued job's priority (0 to 3) and tier derived from `ranks`."""
    table, queue = snapshot.table, snapshot.queued_jobs()
    known = [*ranks, *[0] * len(queue)]
    jobs = [dataclasses.replace(job, priority=known[at] % 4, tier=known[at] // 8) for at, job in enumerate(queue)]
    running = snapshot.running_jobs()
    estimates = {job.id: snapshot.estimate_of(job) for job in table.jobs}
    return Snapshot.of(snapshot.now_s, snapshot.cluster, snapshot.free, jobs, running, estimates)


@scaled_example_settings(100)
@given(
    snapshots(12),
    parameters(),
    st.lists(st.integers(0, 12), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_one_time_equals_plain_plan_by_seconds(snapshot, rules, ranks, whole_nodes, whole):
    """One decision equals all passes of the reference in its starts, nodes and, if requested, planned starts."""
    snapshot = ranked(snapshot, ranks)
    plan = slurm_reference.Plan(snapshot, rules, whole_nodes)
    plan.main("full", -1)
    if rules.bf_interval != -1:
        plan.backfill()
    twin = SlurmTwinDispatcher(text_of(rules), reserved="whole-nodes" if whole_nodes else "parts")
    decision = twin.decide(snapshot, "plan" if whole else "starts")
    assert decision.starts_by_job(snapshot) == plan.starts
    if whole and rules.bf_interval != -1:
        assert decision.plan_by_job(snapshot) == plan.planned


@st.composite
def busy_machines(draw):
    """Draw two to six nodes with single cores in use for up to 600 s, and a queue for whole nodes and parts of nodes.

    Most of the second half of the queue fits now, so that a reservation on other nodes changes which jobs start.
    """
    nodes, now_s = draw(st.integers(2, 6)), draw(st.integers(0, 90))
    held = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(1, 600)), max_size=3 * nodes))
    running = []
    for number, (node, left_s) in enumerate(held):
        if sum(each == node for each, _ in held[:number]) < 4:
            running.append(a_running(a_job(1000 + number, walltime_s=now_s + left_s), ((node, 1),)))
    part = st.sampled_from(["p", "p", "q"])
    queue = []
    for number in range(draw(st.integers(2, 9))):
        units, cores = draw(st.integers(1, nodes)), draw(st.sampled_from([1, 2, 4, 4]))
        row = ["p", "q"].index(draw(part)) + 1
        walltime_s = draw(st.sampled_from([20, 60, 90, 240, 1000]))
        asked = a_job(number, units, cores, walltime_s, distinct=True, node_set=row, queue=("p", "q")[row - 1])
        queue.append(asked)
    sets = {"p": list(range(nodes)), "q": list(range(nodes // 2, nodes))}
    return a_snapshot(Cluster.of([[4]] * nodes, ["cores"], node_sets=sets), queue, running, now_s)


@scaled_example_settings(200)
@given(busy_machines(), st.sampled_from([1, 7, 20, 60]), st.sampled_from([1, 2, 5, 1440]), st.booleans())
def test_reservations_on_busy_machine_equal_slurm_tries(snapshot, resolution_s, window, busy):
    """The twin groups job ends, and tries again when reserved nodes become free, as Slurm does."""
    rules = SchedulerParameters(bf_resolution=resolution_s, bf_window=window, bf_busy_nodes=busy, batch_sched_delay=0)
    plan = slurm_reference.Plan(snapshot, rules)
    plan.main("full", -1)
    plan.backfill()
    decision = SlurmTwinDispatcher(text_of(rules)).decide(snapshot)
    assert (decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)) == (plan.starts, plan.planned)


@scaled_example_settings(60)
@given(snapshots(10), parameters(bf_interval=-1, sched_interval=-1, batch_sched_delay=3), st.integers(1, 5))
def test_submitted_jobs_equal_plain_pass(snapshot, rules, count):
    """Without the main loop and backfill, a job starts only when it is submitted; the last jobs are submitted now."""
    now_s, jobs = snapshot.now_s, list(snapshot.queued_jobs())
    jobs[-count:] = [dataclasses.replace(job, submit_s=now_s) for job in jobs[-count:]]
    estimates = {job.id: snapshot.estimate_of(job) for job in snapshot.table.jobs}
    snapshot = Snapshot.of(now_s, snapshot.cluster, snapshot.free, jobs, snapshot.running_jobs(), estimates)
    plan = slurm_reference.Plan(snapshot, rules)
    plan.main("submitted", now_s - 1)
    assert SlurmTwinDispatcher(text_of(rules)).decide(snapshot, "starts").starts_by_job(snapshot) == plan.starts


@scaled_example_settings(40)
@given(traces(10), parameters(bf_resolution=7), st.sampled_from([-1, 5, 60]))
def test_schedules_equal_sweep_over_seconds(world, rules, interval):
    """The twin skips passes that start no job and requests calls for the other passes; the sweep makes every pass."""
    cluster, trace = world
    rules = dataclasses.replace(rules, sched_interval=interval)
    schedule = replay(trace, cluster, Policy(WalltimePredictor(), SlurmTwinDispatcher(text_of(rules))))
    assert schedule.violations == ()
    expected = slurm_reference.replay(cluster, trace, rules, until_s=1500)
    reference.assert_same_schedule(schedule, cluster, trace, expected)


UNLIMITED = (
    "bf_interval=1,bf_window=43200,bf_resolution=1,bf_max_job_test=1000000,bf_node_space_size=2000000,"
    "batch_sched_delay=0,default_queue_depth=1000000,bf_busy_nodes"
)


@scaled_example_settings(60)
@given(traces(), st.sampled_from(["walltime", "last-two"]))
def test_unlimited_backfill_equals_list_reg(world, predictor):
    """Backfill at every event, with an unlimited window and a resolution of one second, equals `list-reg`."""
    cluster, trace = world
    trace = [dataclasses.replace(item, job=dataclasses.replace(item.job, queue="")) for item in trace]
    textbook = build_policy_for_dispatcher("list-reg", predictor)
    twin = dataclasses.replace(textbook, dispatcher=SlurmTwinDispatcher(UNLIMITED, reserved="parts"), _estimates={})
    expected, found = (
        replay(trace, cluster, build_policy_for_dispatcher("list-reg", predictor)),
        replay(trace, cluster, twin),
    )
    assert found.violations == ()
    assert np.array_equal(found.start_s, expected.start_s)
    if not cluster.counted or cluster.size == 1:
        assert [found.placement_of(i) for i in range(len(trace))] == [
            expected.placement_of(i) for i in range(len(trace))
        ]


@pytest.mark.parametrize("passes", ["bf_interval=-1", "bf_interval=-1,bf_max_job_test=1"])
@scaled_example_settings(40)
@given(world=traces())
def test_disabled_backfill_equals_fcfs(passes, world):
    cluster, trace = world
    trace = [dataclasses.replace(item, job=dataclasses.replace(item.job, queue="")) for item in trace]
    alone = f"{passes},batch_sched_delay=0,default_queue_depth=1000"
    twin = Policy(WalltimePredictor(), SlurmTwinDispatcher(alone))
    assert np.array_equal(
        replay(trace, cluster, twin).start_s, replay(trace, cluster, build_policy_for_dispatcher("fcfs")).start_s
    )
