"""Preemption in a replay: which jobs preempt which, the cost, and that no job is lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cpsched.model import NEVER, Cluster, Job, Request
from cpsched.site.preemption import PreemptionRules
from cpsched_sim import cli
from cpsched_sim.errors import InvalidPolicy
from cpsched_sim.simulation import simulate
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy

NODES = Cluster.of([[4]] * 4, ["cores"])
BY_QOS = """
accounts: { lab: {} }
qos: { high: { priority: 10, preempt: [low, mid] }, mid: { priority: 5, preempt: [low] }, low: {} }
priority: { qos: 1000 }
preemption: { type: qos%s }
"""
BY_TIER = """
accounts: { lab: {} }
partitions: { high: { tier: 3 }, mid: { tier: 2, preempt_mode: cancel }, low: { tier: 1, preempt_mode: off } }
preemption: { type: partition_prio%s }
"""


def workload(rows, policy, cluster=NODES):
    """rows: (submit, request, run seconds, QOS and partition)."""
    jobs = [
        TraceJob(Job(id, submit, 5000, request, user="ada", qos=kind, queue=kind), run_s)
        for id, (submit, request, run_s, kind) in enumerate(rows)
    ]
    return apply_site_policy(
        Workload("made", "lab", cluster, jobs, {}, ()), parse_site_policy_file(Path("site.yaml"), policy)
    )


def with_grace(policy, low_s, mid_s=0):
    policy = policy.replace("low: {}", f"low: {{ grace_time: {low_s} }}")
    return policy.replace("mid: {", f"mid: {{ grace_time: {mid_s},")


def replayed(rows, policy):
    return simulate(workload(rows, policy), "easy", settings={"order": "priority"})


def nodes(count):
    return Request(count, (4,), distinct=True, exclusive=True)


def cores(count):
    return Request(count, (1,))


def runs_of(schedule):
    """Every run, also those that were preempted: (slot, start, end, placement)."""
    last = [
        (slot, int(schedule.start_s[slot]), int(schedule.end_s[slot]), schedule.placement_of(slot))
        for slot in range(len(schedule.start_s))
        if schedule.start_s[slot] != NEVER
    ]
    earlier = [
        (run.slot, run.start_s, run.end_s, run.placement)
        for each in schedule.preemptions
        for run in each.victims
        if run.requeued
    ]
    return last + earlier


def verify_schedule(schedule, jobs, cluster, may_preempt, exempt_s):
    """Raise unless capacity holds at every second, every job ends once, and every victim could be preempted."""
    runs, cancelled = runs_of(schedule), set()
    for at_s in {start_s for _, start_s, _, _ in runs}:
        used = np.zeros_like(cluster.capacity)
        for slot, start_s, end_s, placement in runs:
            request = jobs[slot].job.request
            for node, units in placement if start_s <= at_s < end_s else ():
                used[node] += cluster.capacity[node] if request.exclusive else units * np.array(request.per_unit)
        assert (used <= cluster.capacity).all()
    began = {(slot, start_s) for slot, start_s, _, _ in runs}
    for each in schedule.preemptions:
        assert each.victims
        assert (each.slot, each.at_s) in began
        taken = {node for node, _ in each.placement}
        for run in each.victims:
            assert may_preempt(jobs[each.slot].job, jobs[run.slot].job)
            assert run.start_s + max(1, exempt_s) <= run.end_s == each.at_s
            assert taken & {node for node, _ in run.placement}
            cancelled |= set() if run.requeued else {run.slot}
    kept_s = Counter[int]()
    for run in (run for each in schedule.preemptions for run in each.victims):
        kept_s[run.slot] += run.kept_s
        assert run.lost_node_s >= 0
    for slot, item in enumerate(jobs):
        assert item.job.submit_s <= schedule.start_s[slot] < NEVER
        if slot not in cancelled:
            assert schedule.end_s[slot] - schedule.start_s[slot] == item.run_s - kept_s[slot]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.one_of(st.integers(1, 4).map(nodes), st.integers(1, 16).map(cores)),
        st.integers(1, 200),
        st.sampled_from(["low", "mid", "high"]),
    ),
    min_size=2,
    max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@pytest.mark.parametrize("dispatcher", ["easy", "slurm"])
@pytest.mark.parametrize("exempt_s", [0, 60])
@settings(max_examples=40)
@given(rows=ROWS, mode=st.sampled_from(["requeue", "cancel"]), grace_s=st.sampled_from([(0, 0), (40, 0), (30, 90)]),
       options=st.sampled_from(
    ["", ", youngest_first: true", ", strict_order: true", ", reorder_count: 3", ", victims: least-work",
     ', victims: least-work, checkpoint_every: "00:00:20"']))  # fmt: skip
def test_no_job_is_lost_and_only_lower_qos_is_preempted(dispatcher, exempt_s, rows, mode, options, grace_s):
    more = f', mode: {mode}, exempt_time: "00:{exempt_s // 60:02}:00"{options}'
    made = workload(rows, with_grace(BY_QOS % more, *grace_s))
    rank = {"low": 0, "mid": 1, "high": 2}
    found = simulate(made, dispatcher)
    verify_schedule(found.schedule, made.jobs, NODES, lambda one, other: rank[other.qos] < rank[one.qos], exempt_s)
    assert found.summary()["preemption"]["in_vain"] == 0


@settings(max_examples=40)
@given(rows=ROWS)
def test_partition_without_preemption_keeps_its_jobs(rows):
    made = workload(rows, BY_TIER % "")
    schedule = simulate(made, "easy").schedule
    verify_schedule(schedule, made.jobs, NODES, lambda one, other: (one.queue, other.queue) == ("high", "mid"), 0)
    assert not any(run.requeued for each in schedule.preemptions for run in each.victims)


def test_requeued_job_runs_again_in_full_and_loss_is_counted():
    rows = [(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ""), "easy")
    assert found.schedule.start_s.tolist() == [110, 10]
    assert found.schedule.end_s.tolist() == [610, 110]
    assert found.summary()["preemption"] == {
        "preemptions": 1, "victims": 1, "lost_node_h": 40 / 3600, "in_vain": 0, "mean_wait_s_of_preemptors": 0.0,
    }  # fmt: skip


def test_requeued_job_continues_from_its_last_checkpoint():
    rows = [(0, nodes(4), 500, "low"), (50, nodes(2), 100, "high"), (300, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ', checkpoint_every: "00:00:20"'), "easy")
    assert found.schedule.start_s.tolist() == [400, 50, 300]
    assert found.schedule.end_s.tolist() == [400 + 500 - 40 - 140, 150, 400]
    assert [run.lost_node_s for each in found.schedule.preemptions for run in each.victims] == [4 * 10, 4 * 10]


def test_cancelled_job_ends_at_once():
    rows = [(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ", mode: cancel"), "easy")
    assert found.schedule.start_s.tolist() == [0, 10]
    assert found.schedule.end_s.tolist() == [10, 110]


def test_exempt_time_delays_preemption():
    """No event but the end of the exempt time makes this start possible."""
    rows = [(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ', exempt_time: "00:05:00"'), "easy")
    assert found.schedule.start_s.tolist() == [400, 300]


@pytest.mark.parametrize("policy", [
    with_grace(BY_QOS % "", 60), BY_TIER.replace("preempt_mode: off", 'grace_time: "00:01:00"') % ""
])  # fmt: skip
def test_victim_runs_until_its_grace_time_has_passed(policy):
    """The preemptor starts in the same second, and the victim's work until then is lost."""
    found = simulate(workload([(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")], policy), "easy")
    assert found.schedule.start_s.tolist() == [170, 70]
    assert found.schedule.end_s.tolist() == [670, 170]
    assert found.summary()["preemption"] == {
        "preemptions": 1, "victims": 1, "lost_node_h": 4 * 70 / 3600, "in_vain": 0, "mean_wait_s_of_preemptors": 60.0,
    }  # fmt: skip


def test_nodes_of_preemptor_stay_free_during_grace_time():
    """Otherwise the short job would take a free node, and the preemptor would have to wait for it or preempt it."""
    rows = [(0, nodes(2), 500, "low"), (10, nodes(4), 100, "high"), (20, nodes(1), 100, "low")]
    schedule = simulate(workload(rows, with_grace(BY_QOS % "", 60)), "greedy").schedule
    assert schedule.start_s.tolist()[1:] == [70, 170]


def test_preemptor_starts_early_if_its_victims_end():
    rows = [(0, nodes(4), 30, "low"), (10, nodes(2), 100, "high")]
    schedule = simulate(workload(rows, with_grace(BY_QOS % "", 60)), "easy").schedule
    assert schedule.start_s.tolist() == [0, 30]
    assert not schedule.preemptions


def test_victims_of_one_start_run_until_the_longest_grace_time_has_passed():
    rows = [(0, nodes(2), 500, "low"), (0, nodes(2), 500, "mid"), (10, nodes(4), 100, "high")]
    schedule = simulate(workload(rows, with_grace(BY_QOS % "", 20, 50)), "easy").schedule
    assert schedule.start_s.tolist()[2] == 60
    assert [run.end_s for each in schedule.preemptions for run in each.victims] == [60, 60]


def test_job_that_exceeds_a_limit_after_the_grace_time_does_not_start():
    """Its user's other job started meanwhile. The victims stop, as in Slurm."""
    policy = with_grace(BY_QOS % "", 60).replace("preempt: [low, mid]", "preempt: [low, mid], limits: { MaxJobsPU: 1 }")
    rows = [(0, nodes(3), 500, "low"), (10, nodes(2), 100, "high"), (20, nodes(1), 200, "high")]
    found = simulate(workload(rows, policy), "greedy")
    assert found.schedule.start_s.tolist()[1:] == [280, 20]  # after a second preemption at 220 s
    assert found.summary()["preemption"]["in_vain"] == 1


def test_qos_overrides_mode_and_exempt_time():
    policy = (BY_QOS % "").replace("low: {}", 'low: { preempt_mode: cancel, preempt_exempt_time: "00:01:00" }')
    found = simulate(workload([(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")], policy), "easy")
    assert found.schedule.start_s.tolist() == [0, 60]
    assert found.schedule.end_s.tolist() == [60, 160]


def victims(rows, options=""):
    made = workload(rows, BY_QOS % options)
    (preemption,) = simulate(made, "easy").schedule.preemptions
    return sorted(run.slot for run in preemption.victims)


FULL = [(0, nodes(2), 900, "mid"), (1, nodes(1), 900, "low"), (2, nodes(1), 900, "low")]


@pytest.mark.parametrize(
    ("wanted", "options", "expected"),
    [
        (1, "", [1]),  # lowest QOS, then fewest nodes, then oldest in Slurm's list
        (1, ", youngest_first: true", [2]),
        (2, "", [1, 2]),  # two low jobs before the one of a higher QOS
        (3, ", strict_order: true", [0, 1]),  # the job that completes the set is moved to the front
        (4, "", [0, 1, 2]),
    ],
)
def test_preempts_jobs_in_slurm_order(wanted, options, expected):
    assert victims([*FULL, (50, nodes(wanted), 10, "high")], options) == expected


def test_order_of_submission_decides_between_equal_jobs():
    """Their expected ends do not."""
    made = workload([(0, nodes(2), 900, "low"), (1, nodes(2), 900, "low"), (50, nodes(1), 10, "high")], BY_QOS % "")
    first, second, third = made.jobs
    longer = replace(second, job=replace(second.job, walltime_s=1000))
    (preemption,) = simulate(replace(made, jobs=[first, longer, third]), "easy").schedule.preemptions
    assert [run.slot for run in preemption.victims] == [0]


@pytest.mark.parametrize(("chooser", "expected"), [("slurm", 0), ("least-work", 1)])
def test_policy_file_selects_who_chooses_the_victims(chooser, expected):
    """Slurm stops the job that was submitted first."""
    rows = [(0, nodes(2), 900, "low"), (20, nodes(2), 900, "low"), (50, nodes(1), 10, "high")]
    assert victims(rows, f", victims: {chooser}") == [expected]


def test_least_work_counts_from_the_last_checkpoint():
    """After 50 s and 30 s, the jobs lose 10 s and 30 s with a checkpoint every 40 s."""
    rows = [(0, nodes(2), 900, "low"), (20, nodes(2), 900, "low"), (50, nodes(1), 10, "high")]
    assert victims(rows, ', victims: least-work, checkpoint_every: "00:00:40"') == [0]


def test_cancelled_job_loses_the_work_before_its_checkpoint():
    rows = [(0, nodes(4), 500, "low"), (50, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ', mode: cancel, checkpoint_every: "00:00:20"'), "easy")
    assert [run.lost_node_s for each in found.schedule.preemptions for run in each.victims] == [4 * 50]


@pytest.mark.parametrize(("mode", "expected"), [("requeue", 0), ("cancel", 1)])
def test_price_of_cancelled_job_ignores_its_checkpoint(mode, expected):
    policy = (BY_QOS % ', victims: least-work, checkpoint_every: "00:00:40"').replace(
        "low: {}", f"low: {{ preempt_mode: {mode} }}"
    )
    rows = [(0, nodes(2), 900, "low"), (20, nodes(2), 900, "low"), (50, nodes(1), 10, "high")]
    (preemption,) = simulate(workload(rows, policy), "easy").schedule.preemptions
    assert [run.slot for run in preemption.victims] == [expected]


def test_preempts_no_job_for_start_that_does_not_fit():
    rows = [(0, nodes(3), 900, "low"), (1, nodes(1), 900, "high"), (2, nodes(4), 10, "high")]
    assert simulate(workload(rows, BY_QOS % ""), "easy").schedule.start_s.tolist() == [0, 1, 901]


def test_job_above_its_limit_does_not_preempt():
    policy = (BY_QOS % "").replace("preempt: [low, mid]", "preempt: [low, mid], limits: { MaxJobsPU: 1 }")
    rows = [(0, nodes(4), 900, "low"), (1, nodes(1), 100, "high"), (2, nodes(1), 100, "high")]
    schedule = replayed(rows, policy).schedule
    assert schedule.start_s.tolist()[1:] == [1, 101]


def test_preempt_mode_off_preempts_no_job():
    rows = [(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ", mode: off"), "easy")
    assert found.schedule.start_s.tolist() == [0, 500]
    assert found.summary()["preemption"]["preemptions"] == 0


def test_two_preemptors_do_not_use_same_free_nodes():
    rows = [(0, nodes(3), 500, "low"), (10, nodes(1), 100, "high"), (10, nodes(1), 100, "high")]
    schedule = replayed(rows, BY_QOS % "").schedule
    assert schedule.start_s.tolist()[1:] == [10, 10]
    assert Counter(run.slot for each in schedule.preemptions for run in each.victims) == {0: 1}


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("{ type: qos, mode: suspend }", "mode"),
        ("{ type: gang }", "type"),
        ("{ type: qos, reorder_count: -1 }", "reorder"),
    ],
)
def test_rejects_setting_that_is_not_simulated(section, field):
    with pytest.raises(InvalidPolicy, match=field):
        parse_site_policy_file(Path("site.yaml"), f"preemption: {section}\n")


def test_preempt_list_names_known_qos():
    with pytest.raises(InvalidPolicy, match="scavenger"):
        parse_site_policy_file(Path("site.yaml"), "qos: { high: { preempt: [scavenger] } }\n")


def test_reads_modes_and_lists_from_dump(tmp_path):
    (tmp_path / "qos.txt").write_text(
        "Name|Priority|Preempt|PreemptMode|PreemptExemptTime|GraceTime\n"
        "high|10|low|cluster||00:00:00\nlow|0||cancel|00:10:00|00:02:00\n"
    )
    text = "dumps: { qos: qos.txt }\npreemption: { type: qos }\n"
    policy = parse_site_policy_file(tmp_path / "site.yaml", text).policy
    assert policy.preemption == PreemptionRules(
        "qos", "requeue", {"high": frozenset({"low"})}, {"high": 10, "low": 0}, {"low": "cancel"}, {"low": 120}
    )
    assert policy.preempt_exempt_s("low", "") == 600


def test_json_counts_preemptions_only_if_site_preempts(tmp_path):
    site, trace = tmp_path / "site.yaml", tmp_path / "t.swf"
    rows = ["1 0 -1 500 4 -1 -1 4 500 -1 1 1 1 -1 1 -1 -1 -1", "2 9 -1 50 4 -1 -1 4 60 -1 1 2 1 -1 2 -1 -1 -1"]
    trace.write_text("\n".join(["; MaxProcs: 4", *rows, ""]))
    words = 'accounts: { lab: {} }\npartitions: { "1": { tier: 1 }, "2": { tier: 2 } }\n'
    command = ["simulate", str(trace), "--policy", str(site), "--json"]
    site.write_text(words)
    assert "preemption" not in json.loads(CliRunner().invoke(cli.app, command).stdout)
    site.write_text(words + "preemption: { type: partition_prio }\n")
    counts = json.loads(CliRunner().invoke(cli.app, command).stdout)["preemption"]
    assert counts["victims"] == 1
    assert counts["lost_node_h"] == pytest.approx(4 * 9 / 3600)


def test_two_preemptors_in_one_second_share_a_limit():
    policy = (BY_QOS % "").replace("preempt: [low, mid]", "preempt: [low, mid], limits: { MaxJobsPU: 1 }")
    rows = [*[(0, nodes(1), 1000, "low")] * 4, *[(10, nodes(1), 50, "high")] * 2]
    assert sorted(replayed(rows, policy).schedule.start_s.tolist()[4:]) == [10, 60]


def test_next_preemptor_uses_what_earlier_victims_leave():
    """The first preemptor leaves a node of its victim. The second one stops the other job for one more node."""
    rows = [(0, nodes(3), 500, "low"), (0, nodes(1), 500, "low"), *[(10, nodes(2), 100, "high")] * 2]
    assert replayed(rows, BY_QOS % "").schedule.start_s.tolist()[2:] == [10, 10]


def test_preemptor_that_fits_waits_for_dispatcher():
    """Slurm's main loop runs 30 s after the pass that the job before requested."""
    rows = [(0, nodes(1), 1000, "low"), (95, nodes(1), 1000, "low"), (100, nodes(1), 50, "high")]
    parameters = {"scheduler_parameters": "defer,batch_sched_delay=30,bf_interval=1000,sched_interval=1000"}
    found = simulate(workload(rows, BY_QOS % ""), "slurm", settings=parameters)
    assert found.schedule.start_s.tolist() == [0, 95, 125]
    assert found.schedule.preemptions == ()


def test_request_that_fits_after_a_preemption_starts_in_same_second():
    """It did not fit before the preemption, not even by stopping a job. A later equal request does not overtake it."""
    policy = """
        accounts: { lab: {} }
        qos: { high: { priority: 9, preempt: [low] }, mid: { priority: 9, preempt: [scrap] }, low: {}, scrap: {} }
        priority: { qos: 1000 }
        preemption: { type: qos }
    """
    two_cores = Request(1, (2,))
    rows = [
        (0, Request(1, (3,)), 100, "low"), (0, cores(1), 50, "scrap"),
        (10, two_cores, 20, "mid"), (10, cores(1), 20, "high"), (10, two_cores, 20, "mid"),
    ]  # fmt: skip
    found = simulate(workload(rows, policy, Cluster.of([[4]], ["cores"])), "easy", settings={"order": "priority"})
    assert found.schedule.start_s.tolist()[2:] == [10, 10, 30]
    assert len(found.schedule.preemptions) == 1
