"""A round of the bridge within the site's limits: starts, waits with their reasons, and records."""

from dataclasses import replace

import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import NEVER, NO_STARTS, Decision, Effort
from cpsched.policy_spec import PolicySpec
from cpsched.registry import DISPATCHERS
from cpsched.site.accounts import AccountingLimits, Association, AssociationTree
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched.site.limit_checks import JobLimitAttributes, JobLimitTable
from cpsched.site.site_policy import SitePolicy
from cpsched_bridge.errors import InvalidSetting
from cpsched_bridge.settings import PolicySettings, PowerCapSettings
from cpsched_bridge.store.round_replay import replay_round
from tests.bridges import a_bridge, settle
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.unit.bridge.cycle.test_bad_policies import Bad, raising

NODES = 100


def with_limits(seen):
    """A reading in which Ada may run two jobs at a time; the cluster itself would start more."""
    users = (
        Association("lab", user, limits=AccountingLimits(jobs=2) if user == "ada" else AccountingLimits())
        for user in ("ada", "bob")
    )
    book = JobLimitTable(SitePolicy(AssociationTree((Association("root", parent=-1), *users))))

    def standing(job):
        return book.limits_of(JobLimitAttributes(job.user, job.account, job.queue, "", (("cpu", 1),), 1))

    standings = {pending.job.id: standing(pending.job) for pending in seen.pending}
    return replace(
        seen, limits=PendingJobLimitsAndUsage(standings, book.usage([standing(each.job) for each in seen.running]))
    )


def queue(cluster, ada=60, bob=20):
    cluster.submit(*(a_job(id, user="ada", account="lab") for id in range(1, ada + 1)))
    cluster.submit(*(a_job(1000 + id, user="bob", account="lab") for id in range(bob)))


def running(cluster, user):
    return [fake.job.id for fake in cluster.jobs.values() if fake.running and fake.job.user == user]


def a_limited(tmp_path, dispatcher=None, watts=None, ada=60, facts=(), **parts):
    """A cluster with the queue, and a bridge over it, with a power cap if watts are given."""
    cluster = FakeCluster(cluster=a_cluster(nodes=NODES), view=with_limits, **dict(facts))
    queue(cluster, ada)
    bridge = a_bridge(tmp_path, cluster, dispatcher or DISPATCHERS.build("easy", {"order": "priority"}), **parts)
    if watts is None:
        return cluster, bridge
    policy = PolicySettings(power=PowerCapSettings(cap_w=60, watts=watts))
    settings = bridge.settings.model_copy(update={"policy": policy})
    return cluster, type(bridge)(replace(bridge.parts, settings=settings))


def test_user_at_limit_delays_no_other_and_fails_no_start(tmp_path):
    cluster, bridge = a_limited(tmp_path)
    report = settle(bridge, cluster, 5)[-1]
    assert (len(running(cluster, "bob")), running(cluster, "ada")) == (20, [1, 2])
    assert (report.result, len(report.decided.limited)) == ("ok", 58)
    assert not [happening for happening in report.bridge_events if "fail" in happening.kind]


def test_journal_names_limit_and_usage(tmp_path):
    cluster, bridge = a_limited(tmp_path)
    cluster.now_s = 1
    bridge.cycle()
    (aside,) = [aside for aside in bridge.journal.list_unscheduled_jobs() if aside.job_id == 60]
    assert aside.kind == "ineligible"
    assert aside.reason == "AssocMaxJobsLimit: 2 of 2 jobs for user ada in account lab are in use"


def test_power_cap_applies_besides_limits(tmp_path):
    """8 W a core, a core each: besides ada's two, 60 W have room for five of bob's, and then for as many as end."""
    cluster, bridge = a_limited(tmp_path, watts={"cores": 8})
    settle(bridge, cluster, 4)
    assert (running(cluster, "ada"), len(running(cluster, "bob"))) == ([1, 2], 5)
    (aside,) = [aside for aside in bridge.journal.list_unscheduled_jobs() if aside.job_id == 1019]
    assert aside.reason == "PowerCap: 56 of 60 W for the cluster are in use, and the job requests 8"
    cluster.end(1000)
    settle(bridge, cluster, 3)
    assert len(running(cluster, "bob")) == 5


def test_fallback_respects_power_cap(tmp_path):
    fallback = PolicySpec.of("easy").build()
    cluster, bridge = a_limited(tmp_path, Bad(raising(RuntimeError("broken"))), {"cores": 8}, ada=0, fallback=fallback)
    report = settle(bridge, cluster, 2)[-1]
    assert report.decided.fallback
    assert len(running(cluster, "bob")) == 7


def test_rejects_power_cap_of_unknown_resource_before_deciding(tmp_path):
    cluster, bridge = a_limited(tmp_path, watts={"cores": 8, "gpus": 9})
    with pytest.raises(
        InvalidSetting, match=r"^policy\.power\.watts\.gpus: 9: must be a resource of the cluster: cores$"
    ):
        bridge.run()
    assert [kind for kind, _ in cluster.commands] == ["release"], "as a bridge that stops does"


def test_resource_lost_later_only_fails_cycle(tmp_path):
    cluster, bridge = a_limited(tmp_path, watts={"gpus": 9})
    cluster.jobs.clear()
    cluster.cluster = a_cluster(nodes=NODES, gpus=[1])
    assert bridge.cycle().result == "ok"
    cluster.cluster = a_cluster(nodes=NODES)
    assert any("power.watts=gpus: must be one of cores" in each.detail for each in bridge.cycle().bridge_events)


def test_sent_but_not_running_jobs_count_for_limits(tmp_path):
    cluster, bridge = a_limited(tmp_path, facts={"stalls": 1000})
    settle(bridge, cluster, 3)
    sent = [id for ids in cluster.sent("start") for id in ids if id <= 60]
    assert sorted(set(sent)) == [1, 2]


def test_starts_next_job_when_one_has_ended(tmp_path):
    cluster, bridge = a_limited(tmp_path)
    settle(bridge, cluster, 3)
    cluster.end(1)
    settle(bridge, cluster, 3)
    assert running(cluster, "ada") == [2, 3]


def test_replays_limited_round_from_journal(tmp_path):
    spec = PolicySpec.of("easy", settings={"order": "priority"})
    cluster, bridge = a_limited(tmp_path, policy=spec.build(), policy_spec=spec)
    cluster.now_s = 1
    bridge.cycle()
    record = bridge.journal.read_round(bridge.journal.last_round)
    assert len(record.queue) == 22
    again = replay_round(record)
    assert again.starts == record.starts


def test_journal_has_memory_from_before_final_answer(tmp_path):
    class Remembering(EasyDispatcher):
        """Its memory is how often it was asked; with an odd number it starts nothing."""

        learns = True
        asked = 0

        def decide(self, snapshot, need="plan"):
            self.asked += 1
            if self.asked % 2:
                return Decision(NO_STARTS, Effort("nothing"), np.full(len(snapshot.queue), NEVER))
            return super().decide(snapshot, need)

        def memory(self):
            return self.asked

    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=4), view=with_limits)
    cluster.submit(a_job(1, 1, 4, user="ada", account="lab"), a_job(2, 1, 4, user="ada", account="lab"))
    cluster.submit(a_job(3, user="ada", account="lab"))
    bridge = a_bridge(tmp_path, cluster, Remembering())
    cluster.now_s = 1
    report = bridge.cycle()
    assert report.decided.memory == 1
    assert report.decided.decision.starts_by_job(report.decided.snapshot) != {}
