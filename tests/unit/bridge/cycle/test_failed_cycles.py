"""What the report of a failed cycle contains: everything that the steps before the failure returned."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import EndedJob
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import Hold
from tests.bridges import OpenBridge, a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster, FirstFit
from tests.stores import full_disk
from tests.unit.bridge.cycle.test_bad_policies import ALL, Bad, raising

READ = ["observe", "journal"]
RECONCILED = ["observe", "reconcile", "journal"]
ESTIMATED = ["observe", "reconcile", "decide", "apply", "journal"]
VERIFIED = ["observe", "reconcile", "decide", "verify", "apply", "journal"]


class Reported(NamedTuple):
    """The parts of a report that depend on how far a cycle got."""

    result: str
    phases: list[str]
    is_observed: bool = True
    past: list[int] = [9]  # noqa: RUF012
    queued: list[int] | None = None
    """The jobs of the snapshot, or None without a snapshot."""
    starts: list[int] = []  # noqa: RUF012
    outcomes: list[tuple[str, int, str]] = []  # noqa: RUF012


def timeout(_):
    raise BackendTimeout("no answer")


def refuse(call: str) -> Callable[[OpenBridge, FakeCluster], None]:
    return lambda _, cluster: cluster.inject(call, timeout)


def fill_disk(bridge: OpenBridge, _: FakeCluster) -> None:
    def fail(*_args):
        with full_disk(bridge.ledger):
            record(*_args)

    bridge.ledger.record, record = fail, bridge.ledger.record


def break_journal(bridge: OpenBridge, _: FakeCluster) -> None:
    bridge.journal.write_round = raising(OSError("no"))


def do_nothing(bridge: OpenBridge, cluster: FakeCluster) -> None:
    pass


START = [1, 2]
LOST = [("start", 1, "unknown"), ("start", 2, "unknown")]


@pytest.mark.parametrize(
    ("prepare", "dispatcher", "reported"),
    [
        (refuse("observe"), FirstFit(), Reported("backend_timeout", READ, is_observed=False, past=[])),
        (refuse("claim"), FirstFit(), Reported("backend_timeout", READ, past=[])),
        (fill_disk, FirstFit(), Reported("storage_error", RECONCILED)),
        (do_nothing, Bad(ALL["an error"]), Reported("decision_failed", ESTIMATED, queued=START)),
        (do_nothing, Bad(ALL["a negative slot"]), Reported("rule_broken", VERIFIED, queued=START)),
        (refuse("start"), FirstFit(), Reported("backend_timeout", VERIFIED, queued=START, starts=START, outcomes=LOST)),
        (
            break_journal,
            FirstFit(),
            Reported(
                "internal_error",
                VERIFIED,
                queued=START,
                starts=START,
                outcomes=[("start", 1, "done"), ("start", 2, "done")],
            ),
        ),
    ],
    ids=["observe", "lease", "reconcile", "decide", "verify", "apply", "journal"],
)
def test_report_contains_steps_before_failure(
    tmp_path, prepare: Callable[[OpenBridge, FakeCluster], None], dispatcher: Dispatcher, reported: Reported
):
    cluster = FakeCluster(past=[EndedJob(a_job(9), 0, 5)])
    cluster.submit(a_job(1), a_job(2), hold=Hold.PLUGIN)
    bridge = a_bridge(tmp_path, cluster, dispatcher)
    prepare(bridge, cluster)
    report = bridge.cycle()
    assert reported == Reported(
        report.result,
        list(report.seconds),
        report.observation is not None,
        [ended.job.id for ended in report.changes.past],
        None if report.decided.snapshot is None else [job.id for job in report.decided.snapshot.queued_jobs()],
        sorted(report.decided.starts),
        [(kind, outcome.job_id, outcome.result) for kind, outcome in report.outcomes],
    )
    assert report.result in {event.kind for event in report.bridge_events}
