"""The loop beside a cluster that starts only so many jobs of a user, and one on which commands have no effect."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cpsched_bridge.cycle.retries import IN_VAIN
from cpsched_bridge.likes import BackoffKey
from cpsched_bridge.ports import Hold, Observation, Obstacle, Outcome, PendingJob
from cpsched_bridge.report import CycleReport
from cpsched_bridge.store.ledger import State
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster


@dataclass
class LimitedCluster(FakeCluster):
    """Lets at most `most` jobs of each user run; a job over that stays released, with the reason."""

    most: int = 1
    seen: list[int] = field(default_factory=list)
    """The greatest number of jobs of one user that ran at a time."""

    def schedule(self) -> None:
        kept = dict(self.jobs)
        for id, fake in kept.items():
            if fake.pending and fake.hold is Hold.NONE and self._running(fake.job.user) < self.most:
                self.jobs = {id: fake, **{k: f for k, f in kept.items() if f.running}}
                super().schedule()
                self.jobs = kept
        self.seen.append(max((self._running(f.job.user) for f in kept.values()), default=0))

    def _running(self, user: str) -> int:
        return sum(fake.running and fake.job.user == user for fake in self.jobs.values())

    def read(self) -> Observation:
        seen = super().read()
        return replace(seen, pending=tuple(self._reasoned(each) for each in seen.pending))

    def _reasoned(self, pending: PendingJob) -> PendingJob:
        whom = BackoffKey("association", (pending.job.user, ""))
        over = pending.hold is Hold.NONE and self._running(pending.job.user) >= self.most
        obstacle = Obstacle("MaxJobs", whom) if over else None
        return replace(pending, obstacle=obstacle, groups=(BackoffKey("job", (str(pending.job.id),)), whom))


def test_a_user_at_a_limit_costs_nobody_else_anything(tmp_path: Path) -> None:
    """Neither their starts nor the guard: the bridge stays in control, whatever the number of starts in vain."""
    cluster = LimitedCluster()
    cluster.submit(*(replace(a_job(id), user="alice") for id in range(1, 21)))
    cluster.submit(replace(a_job(30), user="bob"))
    bridge = a_bridge(tmp_path, cluster, guard={"failing_users": 2})
    reports = []
    for _ in range(12):
        reports.append(bridge.cycle())
        cluster.now_s += 1
    assert {report.mode for report in reports} == {"control"}
    assert cluster.jobs[30].running
    assert max(cluster.seen) == 1
    entries = bridge.ledger.by_id
    assert {entry.failures for entry in entries.values()} == {0}
    told = [happening for report in reports for happening in report.happenings if happening.kind != "mode"]
    assert [(each.kind, each.detail.split(";")[0]) for each in told] == [
        ("limit_met", "user alice of account : MaxJobs")
    ]
    seen = reports[-1].observation
    assert seen is not None
    assert "MaxJobs (user alice of account )" in {each.job.ineligible for each in seen.pending}


def test_all_of_them_run_in_the_end(tmp_path: Path) -> None:
    cluster = LimitedCluster(most=2)
    cluster.submit(*(replace(a_job(id), user="alice") for id in range(1, 9)))
    bridge = a_bridge(tmp_path, cluster)
    for _ in range(60):
        bridge.cycle()
        cluster.now_s += 1
        for id, fake in cluster.jobs.items():
            if fake.running and cluster.now_s - (fake.start_s or 0) >= 3:
                cluster.end(id)
    assert all(fake.end_s is not None for fake in cluster.jobs.values())
    assert {fake.starts for fake in cluster.jobs.values()} == {1}


class Deaf(FakeCluster):
    """Does nothing on commands for any job, and does not answer."""

    def _hold(self, job_id: int) -> Outcome:
        return Outcome(job_id, "unknown", "no answer")

    hand_back_one = _hold


@pytest.mark.parametrize("kind", ["hold", "hand_back"])
def test_a_command_without_effect_is_told_and_rested(tmp_path: Path, kind: str) -> None:
    cluster = Deaf(lazy=True)
    cluster.submit(a_job(1), hold=Hold.NONE if kind == "hold" else Hold.PLUGIN)
    bridge = a_bridge(tmp_path, cluster)
    if kind == "hand_back":
        bridge.pause.pause("by the test")
    reports: list[CycleReport] = []
    for _ in range(40):
        reports.append(bridge.cycle())
        cluster.now_s += 1
    sent = [ids for command, ids in cluster.commands if command == kind]
    assert IN_VAIN < len(sent) < 15
    assert [h.job_id for report in reports for h in report.happenings if h.kind == "no_effect"] == [1]
    assert bridge.ledger.by_id[1].state is (State.HOLDING if kind == "hold" else State.HANDING_BACK)


def test_a_restart_forgets_who_is_put_off_and_one_obstacle_brings_that_back(tmp_path: Path) -> None:
    """What a bridge has learned of limits may be out of date when the next one begins."""
    cluster = LimitedCluster()
    cluster.submit(*(replace(a_job(id), user="alice") for id in range(1, 4)))
    first = a_bridge(tmp_path, cluster)
    for _ in range(12):
        first.cycle()
        cluster.now_s += 1
    assert not first.cycle().starts
    second = a_bridge(tmp_path, cluster)
    assert set(second.cycle().starts) == {2, 3}
    cluster.now_s += 1
    told = [happening.kind for happening in second.cycle().happenings]
    assert "limit_met" in told
    assert {entry.failures for entry in second.ledger.entries()} == {0}


def test_a_restart_sends_at_once_what_was_sent_in_vain_before(tmp_path: Path) -> None:
    """A bridge that is started anew, as somebody who mends things does, does not go on resting."""
    cluster = Deaf(lazy=True)
    cluster.submit(a_job(1), hold=Hold.NONE)
    first = a_bridge(tmp_path, cluster)
    for _ in range(40):
        first.cycle()
        cluster.now_s += 1
    before = len(cluster.commands)
    first.cycle()
    assert len(cluster.commands) == before, "it rests"
    second = a_bridge(tmp_path, cluster)
    assert not any(happening.kind == "no_effect" for happening in second.cycle().happenings)
    assert cluster.commands[before:] == [("hold", (1,))]
