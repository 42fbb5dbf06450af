"""Jobs that may preempt: Slurm starts those that need preemption, and the bridge starts no other job in their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cpsched.site.accounts import Qos
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import ApplicableJobLimits, UsageLimitCheck
from cpsched.site.preemption import PreemptionRules
from cpsched.site.site_policy import SitePolicy
from cpsched_bridge.adapters.slurm.policy.preemptors import WITHHELD_S, PreemptorsLeftToSlurm
from cpsched_bridge.ports import Hold, Observation, PendingJob, PreemptionOptions, PreemptionUnderWay, Victim
from tests.builders import a_cluster, a_job, a_running, a_slurm_job, free_beside, words

RULES = PreemptionRules("qos", "requeue", {"high": frozenset({"low"})})
POLICY = SitePolicy(qos={name: Qos(name) for name in ("high", "low")}, preemption=RULES)
NOW_S = 1000


def waiting(id: int, nodes: int, qos: str = "high", hold: Hold = Hold.PLUGIN, **facts: Any) -> PendingJob:
    return PendingJob(a_job(id, nodes, 4, distinct=True, qos=qos), hold, **facts)


def observation(*pending: PendingJob, low: int = 3, now_s: int = NOW_S, start_s: int = 0) -> Observation:
    """Four nodes of four cores; job 90 + n of QOS low runs on node n, for each of the first `low` nodes."""
    cluster = a_cluster()
    running = [a_running(a_job(90 + node, 1, 4), ((node, 1),), start_s) for node in range(low)]
    return Observation(now_s, cluster, free_beside(cluster, running), tuple(pending), tuple(running))


RECORDS = [
    a_slurm_job(
        90 + node, "RUNNING", qos="low", partition="main", comment=comment, is_requeueable=True, is_batch_job=True
    )
    for node, comment in enumerate([None, f"checkpoint={NOW_S - 9}", f"checkpoint={NOW_S + 1}", ""])
]


def leave(
    seen: Observation,
    policy: SitePolicy = POLICY,
    to: PreemptorsLeftToSlurm | None = None,
    options: PreemptionOptions | None = None,
) -> Any:
    return (to or PreemptorsLeftToSlurm()).leave(seen, RECORDS, policy, options)


def left(seen: Observation) -> list[int]:
    return [each.job_id for each in seen.unmanaged]


@pytest.mark.parametrize(
    ("nodes", "qos", "low", "leaves"),
    [
        (1, "high", 3, False),  # fits on the idle node
        (2, "high", 3, True),
        (4, "high", 3, True),
        (5, "high", 3, False),  # does not fit even without the running jobs
        (2, "low", 3, False),  # may not preempt
        (2, "high", 0, False),
    ],
)
def test_only_a_job_that_needs_preemption_and_may_preempt_is_left(nodes: int, qos: str, low: int, leaves: bool) -> None:
    seen = leave(observation(waiting(1, nodes, qos), low=low))
    assert [each.job.id for each in seen.pending] == [1] * (not leaves)
    assert [(each.job_id, words(each.reason), each.held_for_bridge) for each in seen.unmanaged] == [
        (1, "may start by preempting jobs in QOS low", True)
    ] * leaves


def test_its_capacity_is_kept_from_other_jobs_for_a_while() -> None:
    keeper = PreemptorsLeftToSlurm()
    assert leave(observation(waiting(1, 2)), to=keeper).free.sum() == 0  # Slurm stops one job, and uses the idle node
    assert leave(observation(waiting(1, 4)), to=keeper).free.sum() == 0
    stopped = observation(waiting(1, 2, hold=Hold.NONE), low=1, now_s=NOW_S + WITHHELD_S)
    assert leave(stopped, to=keeper).free.tolist() == [[0], [0], [0], [4]]
    late = leave(replace(stopped, now_s=NOW_S + WITHHELD_S + 1), to=keeper)
    assert (late.free.tolist(), left(late)) == (stopped.free.tolist(), [1])


def test_it_stays_with_slurm_while_its_victims_end() -> None:
    """A hold in this moment would make the preemption useless."""
    keeper = PreemptorsLeftToSlurm()
    leave(observation(waiting(1, 2)), to=keeper)
    assert left(leave(observation(waiting(1, 2, hold=Hold.NONE), low=1), to=keeper)) == [1]
    assert left(leave(observation(waiting(1, 2, hold=Hold.NONE), low=1))) == []


def test_preemptor_waits_for_nodes_of_victims_while_slurm_stops_them() -> None:
    """Job 90 runs on three nodes, job 93 on one. If Slurm does not start job 1, job 2 is left to Slurm too."""
    wide = a_running(a_job(90, 3, 4), ((0, 1), (1, 1), (2, 1)))
    seen = observation(waiting(1, 2), waiting(2, 1), low=4)
    seen = replace(seen, running=(wide, seen.running[3]))
    keeper = PreemptorsLeftToSlurm()
    assert left(leave(seen, to=keeper)) == [1]
    released = replace(seen, pending=(waiting(1, 2, hold=Hold.NONE), waiting(2, 1)))
    assert left(leave(released, to=keeper)) == [1]
    assert left(leave(replace(released, now_s=NOW_S + WITHHELD_S + 1), to=keeper)) == [1, 2]


@pytest.mark.parametrize(("refused", "free"), [("", [0, 0, 0, 4]), ("QOSMaxJobsPerUserLimit", [0, 4, 4, 4])])
def test_a_refused_job_keeps_no_capacity(refused: str, free: list[int]) -> None:
    """Its victims on two nodes have ended."""
    keeper = PreemptorsLeftToSlurm()
    leave(observation(waiting(1, 2)), to=keeper)
    seen = leave(observation(waiting(1, 2, hold=Hold.NONE, refused=refused), low=1), to=keeper)
    assert (left(seen), seen.free[:, 0].tolist()) == ([1], free)


@pytest.mark.parametrize(
    "pending",
    [
        waiting(1, 2, hold=Hold.USER),
        waiting(1, 2, hold=Hold.CLUSTER),
        waiting(1, 2, hold=Hold.NONE, pinned=True),
        replace(waiting(1, 2), job=replace(waiting(1, 2).job, ineligible="begins later")),
    ],
)
def test_what_the_bridge_may_not_release_or_is_starting_stays(pending: PendingJob) -> None:
    seen = leave(observation(pending))
    assert (left(seen), seen.pending[0].may_preempt) == ([], True)


def test_unchanged_job_that_may_preempt_remains_the_same_object() -> None:
    """The other steps do not process an unchanged job again."""
    keeper, seen = PreemptorsLeftToSlurm(), observation(waiting(1, 1))
    first, again = leave(seen, to=keeper).pending[0], leave(seen, to=keeper).pending[0]
    assert first is again
    changed = replace(seen, pending=(waiting(1, 1, label="renamed"),))
    assert leave(changed, to=keeper).pending[0].label == "renamed"


def test_a_job_at_its_limit_is_not_left() -> None:
    seen = observation(waiting(1, 2), waiting(2, 2))
    limits = PendingJobLimitsAndUsage({1: ApplicableJobLimits(barred="MaxJobs")}, ())
    assert left(leave(replace(seen, limits=limits))) == [2]


def test_the_next_preemptor_does_not_count_on_the_same_victims() -> None:
    assert left(leave(observation(waiting(1, 3), waiting(2, 2)))) == [1]
    assert left(leave(observation(waiting(1, 2), waiting(2, 2)))) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "now_s", "expected"),
    [
        (replace(POLICY, preemption=replace(RULES, exempt_s=60)), NOW_S, []),
        (replace(POLICY, preemption=replace(RULES, exempt_s=60)), NOW_S + 1, [1]),
        (replace(POLICY, qos={"low": Qos("low", preempt_exempt_s=60)}), NOW_S, []),
    ],
)
def test_an_exempt_job_is_no_victim_yet(policy: SitePolicy, now_s: int, expected: list[int]) -> None:
    assert left(leave(observation(waiting(1, 2), start_s=NOW_S - 59, now_s=now_s), policy)) == expected


def test_running_jobs_show_who_may_preempt_them_and_their_checkpoint() -> None:
    assert leave(observation(low=2)).preemptors == {90: "QOS high", 91: "QOS high"}
    assert leave(observation(low=4)).checkpoints == {91: NOW_S - 9}


def test_without_preemption_nothing_changes() -> None:
    seen = observation(waiting(1, 2))
    assert leave(seen, SitePolicy()) is seen
    assert np.array_equal(seen.free, observation().free)


OPTIONS = PreemptionOptions()
UNDER_WAY = PreemptionUnderWay(1, (("n1", 1), ("n3", 1)), (Victim(91, 0, "requeue"),))


def offers(
    seen: Observation, options: PreemptionOptions = OPTIONS, policy: SitePolicy = POLICY
) -> list[tuple[int, list[int], Any]]:
    """The offers: the job, its victims, and its placement."""
    found = PreemptorsLeftToSlurm().leave(seen, RECORDS, policy, options).preemptions
    return [(each.pending.job.id, [victim.job_id for victim in each.victims], each.placement) for each in found]


def test_offers_victims_of_least_work_for_held_preemptors() -> None:
    """Job 91 has a recent checkpoint. Node 3 is idle."""
    seen = observation(waiting(1, 2), waiting(2, 1), waiting(3, 1, hold=Hold.NONE))
    assert offers(seen) == [(1, [91], ((1, 1), (3, 1))), (2, [90], ((0, 1),))]
    assert (left(leave(seen, options=OPTIONS)), leave(seen).preemptions) == ([1, 2, 3], ())


def test_holds_delayed_preemptor_before_it_offers_victims() -> None:
    """Without a choice of victims, Slurm starts it, so that it needs no hold."""
    seen = observation(waiting(1, 2, hold=Hold.NONE, awaits_hold=True))
    chosen = leave(seen, options=OPTIONS)
    assert (left(chosen), chosen.preemptions) == ([], ())
    assert [(each.job.id, each.may_preempt) for each in chosen.pending] == [(1, True)]
    assert left(leave(seen)) == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"victim_order": None},
        {"grace_s": {"low": 30}},
        {"modes": {"low": "suspend"}},
        {"mode": "off"},
        {"exempt_s": NOW_S + 1},
    ],
)
def test_offers_no_victim_that_only_slurm_may_stop(changes: dict[str, Any]) -> None:
    assert offers(observation(waiting(1, 2)), OPTIONS, replace(POLICY, preemption=replace(RULES, **changes))) == []


@pytest.mark.parametrize(
    ("mode", "can", "expected"),
    [
        ("requeue", (True, True), ["requeue"]),
        ("requeue", (False, True), ["cancel"]),
        ("requeue", (True, False), ["cancel"]),
        ("requeue", (None, True), []),
        ("requeue", (True, None), []),
        ("cancel", (None, None), ["cancel"]),
    ],
)
def test_victim_that_cannot_be_requeued_is_cancelled(
    mode: Any, can: tuple[bool | None, ...], expected: list[str]
) -> None:
    facts = dict(zip(("is_requeueable", "is_batch_job"), can, strict=True))
    policy = replace(POLICY, preemption=replace(RULES, mode=mode))
    seen = observation(waiting(1, 2), low=4)
    records = [each._replace(**facts) for each in RECORDS]
    found = PreemptorsLeftToSlurm().leave(seen, records, policy, OPTIONS).preemptions
    assert [victim.mode for each in found for victim in each.victims] == expected * 2


def test_only_slurm_stops_a_suspended_job() -> None:
    """Its record is valid for Slurm, but the bridge's commands need a running job."""
    suspended = [each._replace(state="SUSPENDED") for each in RECORDS]
    seen = PreemptorsLeftToSlurm().leave(observation(waiting(1, 2)), suspended, POLICY, OPTIONS)
    assert (left(seen), seen.preemptions) == ([1], ())
    suspended[0] = RECORDS[0]
    seen = PreemptorsLeftToSlurm().leave(observation(waiting(1, 2)), suspended, POLICY, OPTIONS)
    assert [victim.job_id for each in seen.preemptions for victim in each.victims] == [90]


@pytest.mark.parametrize(("is_requeueable", "expected"), [(True, 91), (False, 90)])
def test_checkpoint_lowers_price_only_of_job_that_is_requeued(is_requeueable: bool, expected: int) -> None:
    records = [each._replace(is_requeueable=each.id != 91 or is_requeueable) for each in RECORDS]
    found = PreemptorsLeftToSlurm().leave(observation(waiting(1, 2)), records, POLICY, OPTIONS).preemptions
    assert [victim.job_id for each in found for victim in each.victims] == [expected]


@pytest.mark.parametrize(("grace_s", "count"), [(0, 1), (30, 0)])
def test_grace_time_of_partition_counts_if_partitions_preempt(grace_s: int, count: int) -> None:
    ranks = {"fast": 2, "main": 1}
    policy = SitePolicy(preemption=PreemptionRules("partition_prio", "cancel", ranks=ranks, grace_s={"main": grace_s}))
    job = replace(waiting(1, 2), job=replace(waiting(1, 2).job, queue="fast"))
    assert len(offers(observation(job), OPTIONS, policy)) == count


def test_spared_job_is_offered_to_no_start() -> None:
    spared = PreemptionOptions(spared=frozenset({91}))
    assert offers(observation(waiting(1, 2)), spared) == [(1, [90], ((0, 1), (3, 1)))]
    assert offers(observation(waiting(1, 4)), spared) == []


NOT_FOR_HIGH = replace(RULES, preempts={"high": frozenset({"mid"}), "top": frozenset({"low"})})


@pytest.mark.parametrize(
    ("seen", "policy", "victims", "free"),
    [
        (observation(waiting(1, 2), waiting(2, 1, "low")), POLICY, [91], [0, 0, 0, 0]),
        # Job 91 has ended, or runs again.
        (observation(waiting(1, 2), low=1), POLICY, [], [0, 0, 4, 0]),
        (observation(waiting(1, 2), start_s=NOW_S - 1), POLICY, [], [0, 0, 0, 0]),
        # The operator changed the rules since: Slurm may not stop job 91 for job 1.
        (observation(waiting(1, 2)), replace(POLICY, preemption=NOT_FOR_HIGH), [], [0, 0, 0, 0]),
    ],
)
def test_preemption_under_way_keeps_its_nodes_and_names_running_victims(
    seen: Observation, policy: SitePolicy, victims: list[int], free: list[int]
) -> None:
    options = PreemptionOptions({1: UNDER_WAY})
    assert offers(seen, options, policy) == [(1, victims, ((1, 1), (3, 1)))]
    found = leave(seen, policy, options=options)
    assert (left(found), found.free[:, 0].tolist()) == ([], free)


def test_next_offer_counts_on_nothing_of_a_preemption_under_way() -> None:
    options = PreemptionOptions({1: UNDER_WAY})
    assert offers(observation(waiting(1, 2), waiting(2, 1)), options)[1:] == [(2, [90], ((0, 1),))]


@pytest.mark.parametrize("options", [None, PreemptionOptions()])
def test_several_preemptors_of_one_user_respect_a_limit_together(options: PreemptionOptions | None) -> None:
    """Otherwise, jobs are stopped for a job that its user's limit then keeps waiting."""
    seen = observation(waiting(1, 1), waiting(2, 1), waiting(3, 1), low=4)
    one_job = ApplicableJobLimits(((0, 1),), (UsageLimitCheck(0, 1, 1, "MaxJobsPU", "user eve", "jobs"),))
    seen = replace(seen, limits=PendingJobLimitsAndUsage({1: one_job, 2: one_job}, [0]))
    assert left(PreemptorsLeftToSlurm().leave(seen, RECORDS, POLICY, options)) == [1, 3]


def test_jobs_of_one_node_make_room_for_several_preemptors() -> None:
    cluster = a_cluster(1, 8)
    running = tuple(a_running(a_job(90 + at, 1, 4), ((0, 1),), start_s=0) for at in range(2))
    pending = tuple(PendingJob(a_job(id, 1, 4, qos="high"), Hold.PLUGIN) for id in (1, 2))
    seen = Observation(NOW_S, cluster, np.zeros((1, 1), np.int64), pending, running)
    assert [victims for _, victims, _ in offers(seen, PreemptionOptions())] in ([[90], [91]], [[91], [90]])


@pytest.mark.parametrize(("refused", "after_s"), [("", WITHHELD_S + 1), ("QOSMaxJobsPerUserLimit", 0)])
def test_capacity_of_an_offer_is_always_kept(refused: str, after_s: int) -> None:
    keeper, seen = PreemptorsLeftToSlurm(), observation(waiting(1, 2, refused=refused))
    keeper.leave(seen, RECORDS, POLICY, PreemptionOptions())
    late = keeper.leave(replace(seen, now_s=NOW_S + after_s), RECORDS, POLICY, PreemptionOptions())
    assert (len(late.preemptions), late.free.sum()) == (1, 0)
