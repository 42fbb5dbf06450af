"""Reports on backed-off jobs in the round, in metrics, and in `status` and `why`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cpsched_bridge.program.bridge_reports import report_job, report_status
from cpsched_bridge.program.terminal_views import print_status, print_why
from cpsched_bridge.store.journal_reader import BACKOFF_KIND
from tests.bridges import Metrics, a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster


def test_counts_and_explains_backed_off_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, metrics = FakeCluster(), Metrics()
    for id in (1, 2, 3):
        cluster.submit(replace(a_job(id), user="mallory"), stubborn="shut out")
    cluster.submit(replace(a_job(4), user="bob"), stubborn="ineligible")
    bridge = a_bridge(tmp_path, cluster, listeners=(metrics,), heartbeat=tmp_path / "heartbeat")
    for _ in range(3):
        bridge.cycle()
        cluster.advance()
    assert metrics.value("cpsched_backoff_jobs") == 3
    assert metrics.value("cpsched_failing_users") == 0, "Slurm has named the reason"
    asides = bridge.journal.list_unscheduled_jobs(BACKOFF_KIND)
    assert {(aside.job_id, aside.user) for aside in asides} == {(id, "mallory") for id in (1, 2, 3)}
    assert {aside.reason for aside in asides} == {"QOSNotAllowed (partition  of user mallory with account  and QOS )"}
    print_status(report_status(bridge.settings))
    print_why(report_job("2", bridge.settings), bridge.settings)
    told = capsys.readouterr().out
    assert "in backoff: 3 jobs from 1 user" in told
    reason = "QOSNotAllowed (partition  of user mallory with account  and QOS )"
    assert f"It is in backoff after a failed start: {reason}." in told


def test_counts_users_with_only_failed_starts(tmp_path: Path) -> None:
    cluster, metrics = FakeCluster(), Metrics()
    for id in range(1, 5):
        cluster.submit(replace(a_job(id, walltime_s=60 + id), user="mallory"), stubborn="bounced")
    bridge = a_bridge(tmp_path, cluster, listeners=(metrics,))
    for _ in range(4):
        bridge.cycle()
        cluster.advance()
    assert (metrics.value("cpsched_failing_users"), bridge.pause.read_reason()) == (1, None)
