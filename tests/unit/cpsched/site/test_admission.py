"""One round within limits: never more than they allow, no other job delayed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.feasibility import verify
from cpsched.model import (
    NEVER,
    NO_STARTS,
    Cluster,
    Decision,
    Effort,
    Job,
    PowerCap,
    Request,
    RunningJob,
    Snapshot,
    Starts,
)
from cpsched.site.accounts import AccountingLimits, Association, AssociationTree, Qos
from cpsched.site.admission import (
    PendingJobLimitsAndUsage,
    admit_jobs,
    decide_respecting_limits,
    pending_job_limits,
    respects_limits,
)
from cpsched.site.limit_checks import JobLimitAttributes, JobLimitTable
from cpsched.site.site_policy import SitePolicy
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings

NONE = AccountingLimits()
USERS = {"a": "ada", "b": "bob", "c": "cid"}
POOL = Cluster.of([[8]], ["cores"])


def claim(job):
    return JobLimitAttributes(
        job.user, job.account, job.queue, job.qos, (("cpu", job.request.units), ("node", 1)), job.walltime_s // 60
    )


def job(id, user="ada", cores=1, minutes=10, **named):
    return Job(id, id, minutes * 60, Request(cores, (1,)), user=user, account="lab", qos="normal", **named)


def scene(jobs, limits=NONE, running=(), cores=8, ada=NONE):
    """(snapshot, limits now) of a pool with these limits on the QOS, and on ada's association; others have none."""
    users = (Association("lab", user, parent=0, limits=ada if user == "ada" else NONE) for user in USERS.values())
    site = SitePolicy(
        AssociationTree((Association("root", parent=-1), *users)), {"normal": Qos("normal", limits=limits)}
    )
    book = JobLimitTable(site)
    standings = {each.id: book.limits_of(claim(each)) for each in jobs}
    used = book.usage([book.limits_of(claim(each)) for each in running])
    snapshot = Snapshot.of(1000, POOL, [[cores]], jobs, (), {each.id: each.walltime_s for each in jobs})
    return snapshot, PendingJobLimitsAndUsage(standings, used)


def started(snapshot, limits, dispatcher=None):
    chosen = dispatcher or EasyDispatcher(order="priority")
    found = decide_respecting_limits(snapshot, limits, chosen.decide)
    assert not verify(found.decision, found.snapshot)
    return sorted(found.decision.starts_by_job(found.snapshot)), found


def test_user_at_limit_delays_no_other_user():
    jobs = [job(id) for id in range(60)] + [job(id, "bob") for id in range(60, 66)]
    ids, found = started(*scene(jobs, ada=AccountingLimits(jobs=2)))
    assert (ids, len(found.limited)) == ([0, 1, *range(60, 66)], 58)
    assert found.limited[2] == "AssocMaxJobsLimit: 2 of 2 jobs for user ada in account lab are in use"


@pytest.mark.parametrize(
    ("jobs", "site", "dispatcher", "ids"),
    [
        ([job(1), job(2), job(3)], {"limits": AccountingLimits(jobs_a_user=2), "running": [job(99)]}, None, [1]),
        # The site's order decides under a limit.
        ([job(1, priority=5), job(2, priority=9), job(3, priority=1, tier=1)],
         {"limits": AccountingLimits(group_tres={"cpu": 2})}, None, [2, 3]),
        # Conservative planning would put ada's ten jobs one after the other and keep bob's job away from the nodes.
        ([job(id, cores=8, minutes=60) for id in range(10)] + [job(10, "bob", cores=8)],
         {"ada": AccountingLimits(jobs=0)}, ListDispatcher(), [10]),
        # A smaller job starts if the first of the user does not fit.
        ([job(1, cores=8), job(2, cores=2, minutes=1)],
         {"limits": AccountingLimits(tres_a_user={"cpu": 8}), "cores": 4}, ListDispatcher(option="greedy"), [2]),
    ],
)  # fmt: skip
def test_starts_within_limits(jobs, site, dispatcher, ids):
    assert started(*scene(jobs, **site), dispatcher)[0] == ids


@pytest.mark.parametrize("dispatcher", [EasyDispatcher(order="priority"), ListDispatcher(), EasyDispatcher()])
def test_power_cap_is_one_more_limit(dispatcher):
    """8 W a core: one core runs, and beside its 8 W the cap has room for three more; bob may run one job."""
    jobs = [job(1, cores=2), job(2, cores=2), job(3, "bob"), job(4, "bob"), job(5)]
    snapshot, limits = scene(jobs, AccountingLimits(jobs_a_user=2))
    snapshot = replace(
        Snapshot.of(
            1000, POOL, [[7]], jobs, [RunningJob(job(9), 0, ((0, 1),))], {each.id: 600 for each in (*jobs, job(9))}
        ),
        cluster=replace(POOL, power=PowerCap.of(32, {"cores": 8})),
    )
    ids, found = started(snapshot, limits, dispatcher)
    assert ids == [1, 3]
    assert found.limited[2] == "PowerCap: 24 of 32 W for the cluster are in use, and the job requests 16"
    assert limits.standings == scene(jobs, AccountingLimits(jobs_a_user=2))[1].standings, (
        "what was handed in stays as it is"
    )


def test_limits_apply_under_wide_power_cap():
    snapshot, limits = scene([job(1), job(2), job(3, "bob")], AccountingLimits(jobs_a_user=1))
    wide = replace(snapshot, cluster=replace(POOL, power=PowerCap.of(640, {"cores": 8})))
    assert started(wide, limits)[0] == [1, 3]


@pytest.mark.parametrize("cap_w", [64, 104])
def test_unused_power_goes_to_other_jobs(cap_w):
    """The first job has no room on the nodes, whose watts the second may have."""
    jobs = [job(1, cores=8), job(2, cores=4)]
    running = [RunningJob(job(9), 0, ((0, 1),))]
    capped = replace(POOL, power=PowerCap.of(cap_w, {"cores": 8}))
    snapshot = Snapshot.of(1000, capped, [[7]], jobs, running, {1: 10_000, 2: 60, 9: 5000})
    assert started(snapshot, None)[0] == [2]


@pytest.mark.parametrize("limits", [None, PendingJobLimitsAndUsage()])
def test_policy_decides_alone_without_cap_and_limits(limits):
    snapshot, _ = scene([job(1), job(2)])
    ids, found = started(snapshot, limits)
    assert (ids, found.snapshot is snapshot) == ([1, 2], True)


def test_starting_jobs_count_as_running():
    jobs = [job(1), job(2), job(3)]
    snapshot, limits = scene(jobs, AccountingLimits(jobs_a_user=2))
    assert started(snapshot, limits.add_job_usage([3, 77]))[0] == [1]


class Counting(EasyDispatcher):
    """Starts nothing when it is asked first, and whatever fits when it is asked again."""

    asked = 0

    def decide(self, snapshot, need="plan"):
        self.asked += 1
        if self.asked == 1:
            return Decision(NO_STARTS, Effort("nothing"), np.full(len(snapshot.queue), NEVER))
        return ListDispatcher(option="greedy").decide(snapshot, need)


def test_reports_each_kind_of_refusal_once():
    book = JobLimitTable(SitePolicy(qos={"normal": Qos("normal", limits=AccountingLimits(wall_min=1))}))
    standing = book.limits_of(claim(job(1)))
    found = admit_jobs([standing, None, standing], book.usage([]), [0, 1, 2])
    assert (found.positions.tolist(), found.refused[0] is found.refused[2]) == ([1], True)
    assert found.refused[0].startswith("QOSMaxWallDurationPerJobLimit: 10 minutes")


limit = st.none() | st.integers(0, 4)
amounts = st.dictionaries(st.just("cpu"), st.integers(0, 9), max_size=1)
LIMITS = st.builds(
    AccountingLimits, group_jobs=limit, jobs_a_user=limit, jobs_an_account=limit, group_tres=amounts, tres_a_user=amounts,  # noqa: E501
    tres_an_account=amounts, group_running_minutes=st.dictionaries(st.just("cpu"), st.integers(0, 200), max_size=1),
    wall_min=st.none() | st.integers(1, 60),
)  # fmt: skip
JOBS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=14
)
DISPATCHERS = st.sampled_from(
    [EasyDispatcher(order="priority"), ListDispatcher("priority"), ListDispatcher(option="greedy"),
     ListDispatcher("saf", option="strict")]
)  # fmt: skip


def made(rows):
    return [
        job(id, USERS[who], cores, minutes, priority=rank) for id, (who, cores, minutes, rank) in enumerate(rows, 1)
    ]


@scaled_example_settings(150)
@given(LIMITS, JOBS, JOBS, DISPATCHERS)
def test_never_starts_more_than_limits_allow(limits, waiting, running, dispatcher):
    """Counted here from the jobs themselves, with nothing of the code that admits them."""
    now, before = made(waiting), [job(1000 + j.id, j.user, j.request.units) for j in made(running)[:3]]
    snapshot, standing = scene(now, limits, before)
    ids, _ = started(snapshot, standing, dispatcher)
    chosen = [each for each in now if each.id in ids]

    everyone = [*before, *chosen]
    counted = []
    for user in USERS.values():
        mine, new = [j for j in everyone if j.user == user], [j for j in chosen if j.user == user]
        counted += [(limits.jobs_a_user, len(mine), new), (limits.tres_a_user.get("cpu"), cores(mine), new)]
    minutes = sum(each.request.units * (each.walltime_s // 60) for each in everyone)
    counted += [
        (limits.group_jobs, len(everyone), chosen),
        (limits.jobs_an_account, len(everyone), chosen),
        (limits.group_tres.get("cpu"), cores(everyone), chosen),
        (limits.tres_an_account.get("cpu"), cores(everyone), chosen),
        (limits.group_running_minutes.get("cpu"), minutes, chosen),
        *((limits.wall_min, each.walltime_s // 60, chosen) for each in chosen),
    ]
    assert [row for row in counted if row[0] is not None and row[2] and row[1] > row[0]] == []


def cores(jobs):
    return sum(each.request.units for each in jobs)


@scaled_example_settings(150)
@given(JOBS, st.integers(0, 3), DISPATCHERS)
def test_limited_user_changes_no_plan_of_others(waiting, most, dispatcher):
    """Ada is full: the others' jobs start, and are planned, as if hers were not there."""
    jobs = made(waiting)
    running = [job(1000 + at) for at in range(most)]
    _, found = started(*scene(jobs, NONE, running, ada=AccountingLimits(jobs=most)), dispatcher)
    alone = [each for each in jobs if each.user != "ada"]
    assert found.limited.keys() == {each.id for each in jobs} - {each.id for each in alone}
    reference = Snapshot.of(1000, POOL, [[8]], alone, (), {each.id: each.walltime_s for each in alone})
    expected = dispatcher.decide(reference)
    assert (expected.starts_by_job(reference), expected.plan_by_job(reference)) == (
        found.decision.starts_by_job(found.snapshot),
        found.decision.plan_by_job(found.snapshot),
    )


class Noting(EasyDispatcher):
    """Notes which jobs it is asked about."""

    def __init__(self):
        super().__init__(order="priority")
        self.asked = []

    def decide(self, snapshot, need="plan"):
        self.asked.append([job.id for job in snapshot.queued_jobs()])
        return super().decide(snapshot, need)


@pytest.mark.parametrize(
    ("chosen", "jobs", "cores", "ids", "asked", "limited"),
    [
        # The second answer breaks the limit, and is rejected.
        (Counting(), [job(1), job(2), job(3)], 8, [], 2, {2, 3}),
        # It asks once if limited jobs fit on no node, or if the starts fill the limit.
        (Counting(), [job(1, cores=8), job(2, cores=8), job(3, cores=6)], 4, [], 1, {2, 3}),
        (Noting(), [job(1), job(2), job(3, "bob", cores=9)], 8, [1], [[1, 3]], {2}),
        # A job that does not fit leaves the limit to the next.
        (Noting(), [job(1, cores=9), job(2), job(3), job(4, "bob", cores=9)], 8, [2], [[1, 4], [1, 2, 4]], {3}),
    ],
)
def test_asks_again_if_a_limited_job_could_start(chosen, jobs, cores, ids, asked, limited):
    starts, found = started(*scene(jobs, AccountingLimits(jobs_a_user=1), cores=cores), chosen)
    assert (starts, chosen.asked, found.limited.keys()) == (ids, asked, limited)


@pytest.mark.parametrize(
    ("jobs", "dispatcher", "asked_before"),
    [
        ([job(1), job(2)], Noting, 0),
        ([job(1, cores=9), job(2), job(3), job(4, "bob", cores=9)], Noting, 1),
        ([job(1), job(2), job(3)], Counting, 0),
    ],
    ids=["one decision", "second accepted", "second rejected"],
)
def test_returns_memory_before_accepted_decision(jobs, dispatcher, asked_before):
    """A dispatcher that decides twice may change in between."""
    chosen, asked = dispatcher(), []

    def decide(snapshot):
        asked.append(snapshot)
        return chosen.decide(snapshot)

    found = decide_respecting_limits(*scene(jobs, AccountingLimits(jobs_a_user=1)), decide, lambda: len(asked))
    assert found.memory == asked_before
    assert asked[found.memory] is found.snapshot


def standing_for(limits, user="ada"):
    book = JobLimitTable(SitePolicy(qos={"normal": Qos("normal", limits=limits)}))
    return book.limits_of(claim(job(1, user))), book


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_reports_limit_positions_in_queue_order(order):
    standing, book = standing_for(AccountingLimits(group_jobs=2))
    found = admit_jobs([standing] * 3, book.usage([]), order)
    assert (found.positions.tolist(), list(found.refused)) == (sorted(order[:2]), order[2:])
    assert found.refused[order[2]] == "QOSGrpJobsLimit: 2 of 2 jobs for QOS normal are in use"


def test_formats_refusals_lazily():
    for limits in (AccountingLimits(group_jobs=0), AccountingLimits(wall_min=1)):
        standing, book = standing_for(limits)
        found = admit_jobs([standing], book.usage([]), [0], whole=False)
        assert found.refused == {0: standing.barred or "limit"}


def test_unlimited_job_has_no_standing():
    free = JobLimitTable(SitePolicy(qos={"normal": Qos("normal")})).limits_of(claim(job(1)))
    full, _ = standing_for(AccountingLimits(group_jobs=0))
    barred, _ = standing_for(AccountingLimits(wall_min=1))
    snapshot, _ = scene([job(id) for id in (1, 2, 3, 4)])
    assert pending_job_limits(snapshot, PendingJobLimitsAndUsage({1: free, 2: full, 3: barred})) == [
        None,
        full,
        barred,
        None,
    ]


@pytest.mark.parametrize(
    ("limit", "used", "ids", "kept"),
    [
        ({"group_jobs": 2}, 0, (1, 2), True),
        ({"group_jobs": 2}, 1, (1, 2), False),
        ({"group_jobs": 2}, 1, (1,), True),
        ({"group_jobs": 2}, 2, (1,), False),
        ({"wall_min": 1}, 0, (1,), False),  # a job that is barred
    ],
)
def test_starts_respect_limit_in_sequence(limit, used, ids, kept):
    standing, _ = standing_for(AccountingLimits(**limit))
    snapshot, _ = scene([job(id) for id in (1, 2, 3)])
    limits = PendingJobLimitsAndUsage({1: standing, 2: standing}, [used])
    starts = Starts.of({int(snapshot.queue[id - 1]): ((0, 1),) for id in ids})
    assert respects_limits(snapshot, starts, limits) is kept
    assert limits.used == [used], "what is counted on the way is a copy"
    assert respects_limits(snapshot, Starts.of({int(snapshot.queue[2]): ((0, 1),)}), limits)


def test_counting_starting_jobs_does_not_change_usage():
    standing, _ = standing_for(AccountingLimits(group_jobs=9))
    limits = PendingJobLimitsAndUsage({1: standing, 2: standing}, [3])
    assert (limits.add_job_usage([1, 2, 77]).used, limits.add_job_usage([]).used, limits.used) == ([5], [3], [3])
