"""What the bridge does after each kind of failed start, as a recorded table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cpsched.model import Decision, Snapshot
from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_states
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import may_command_have_taken_effect
from cpsched_bridge.backoff_groups import make_equivalence_class_key
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import Hold, Observation, Outcome, PendingJob
from cpsched_bridge.store.ledger import LedgerState
from tests.bridges import a_bridge
from tests.builders import a_job, a_slurm_job, words
from tests.fakes import FakeCluster, FirstFit

TABLE = Path(__file__).with_name("backoff_table.txt")
"""For each cause of a failed start: what becomes of the job, which jobs wait, and whether the breaker counts it."""
TIMEOUT_S = 3
JOB = a_job(1, per_unit=3, user="alice", account="lab", queue="main", qos="fast")
OTHERS = {
    "a task of its array": replace(JOB, id=2),
    "an equal job": replace(JOB, id=3),
    "another request": replace(JOB, id=4, walltime_s=50),
    "same account": replace(JOB, id=5, queue="long", qos="slow"),
    "same QOS": replace(JOB, id=6, account="other", queue="long"),
    "same partition": replace(JOB, id=7, account="other", qos="slow"),
    "same user": replace(JOB, id=8, account="other", queue="long", qos="slow"),
    "another user": replace(JOB, id=9, user="bob"),
}
"""Jobs beside the failing one, by what they have in common with it."""
MORE = {id: replace(JOB, id=id, walltime_s=1000 + id) for id in (11, 12, 13)}
"""Jobs of the user with other requests whose starts fail for the same cause at the same time."""
CLASS_TEXT = "jobs of user alice, account lab, QOS fast that request 1 x 3 for 100 s in main"


class OnlyFailing(FirstFit):
    """A dispatcher that starts only the failing jobs."""

    def decide(self, snapshot: Snapshot, need: str = "plan") -> Decision:
        fails = [snapshot.table.jobs[slot].id in {1, *MORE} for slot in snapshot.queue.tolist()]
        return super().decide(replace(snapshot, queue=snapshot.queue[fails]))


def show(pending: PendingJob, text: str | None = None, **facts: object) -> PendingJob:
    """Return a pending job with Slurm's reason, read as the adapter reads it, and its groups."""
    job = pending.job
    array = 7 if job.id in {1, 2} else 0
    slurm_job = a_slurm_job(
        array_id=array,
        user_name=job.user,
        account=job.account,
        qos=job.qos,
        partition=job.queue,
        state_reason=text or "",
    )
    label = f"7_{job.id}" if array else str(job.id)
    subject = pending_reasons.PendingJobWithReason(label, slurm_job, make_equivalence_class_key(job))
    meaning = pending_reasons.get_reason_meaning(text or "")
    return replace(
        pending,
        cluster_reason=pending_reasons.find_cluster_reason(subject),
        groups=pending_reasons.list_backoff_keys(subject),
        lower_priority=meaning.lower_priority,
        refused=pending_reasons.normalize_reason_name(text or "") if meaning.refused else "",
        **facts,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Cause:
    """Why a start fails: the command's answer, what Slurm then shows for the job, or what happens meanwhile."""

    answer: Outcome | Exception | None = None
    shown: Callable[[PendingJob], PendingJob] = show
    meanwhile: Callable[[FakeCluster], object] = lambda cluster: None


def answered(text: str) -> Cause:
    """A start that scontrol answers with this error."""
    return Cause(Outcome(1, "unknown" if may_command_have_taken_effect(text) else "refused", text))


def waits(text: str) -> Cause:
    """A released job that waits with this reason of Slurm."""
    return Cause(shown=lambda pending: show(pending, text))


def held(text: str, comment: str = "", pinned: bool = True) -> Cause:
    """A released job that is held again, for this reason of Slurm."""
    slurm_job = a_slurm_job(priority=0, state_reason=text, comment=comment)
    hold, holder = slurm_states.classify_hold(slurm_job, guarded=True), slurm_states.find_holder(slurm_job)
    return Cause(shown=lambda pending: show(pending, text, hold=hold, holder=holder, pinned=pinned))


def run_elsewhere(cluster: FakeCluster) -> None:
    cluster.run_now(1, ((3, 1),))


def run_briefly(cluster: FakeCluster) -> None:
    cluster.run_now(1, ((0, 1),))
    cluster.end(1)


def take_node(cluster: FakeCluster, cores: int) -> None:
    """Let another job occupy cores of the job's node, which has four."""
    node = cluster.cluster.node_names.index(cluster.jobs[1].pin[0][0])
    cluster.submit(a_job(20 + cluster.now_s, units=cores, user="bob"))
    cluster.run_now(20 + cluster.now_s, ((node, cores),))


def rename_nodes(cluster: FakeCluster) -> None:
    names = [f"{name}x" for name in cluster.cluster.node_names]
    cluster.cluster = replace(cluster.cluster, node_names=tuple(names))


CAUSES = {
    # the command
    "scontrol: Requested node configuration is not available": answered(
        "Requested node configuration is not available"
    ),
    "scontrol: Access/permission denied": answered("Access/permission denied"),
    "scontrol: Invalid job id specified": answered("Invalid job id specified"),
    "scontrol: Unable to contact slurm controller": answered("Unable to contact slurm controller (connect failure)"),
    "scontrol: Socket timed out on send/recv operation": answered("Socket timed out on send/recv operation"),
    "not sent: an earlier command got no answer": Cause(Outcome(1, "refused", "not sent", "not_sent")),
    "no answer to the batch": Cause(BackendTimeout("no answer")),
    "no controller": Cause(BackendUnavailable("no controller")),
    "the batch is refused": Cause(CommandRefused("no permission")),
    # what happens meanwhile
    "runs on another node": Cause(meanwhile=run_elsewhere),
    "ran between two readings": Cause(meanwhile=run_briefly),
    "cancelled": Cause(meanwhile=lambda cluster: cluster.cancel(1)),
    "another job takes its node": Cause(meanwhile=partial(take_node, cores=2)),
    "another job takes the rest of its node": Cause(meanwhile=partial(take_node, cores=1)),
    "its node is renamed": Cause(meanwhile=rename_nodes),
    # a reason that concerns no group
    **{
        text: waits(text)
        for text in (
            "None", "Resources", "NodeDown", "Prolog", "SchedDefer", "Priority",
            "ReqNodeNotAvail, UnavailableNodes:n0", "ReqNodeNotAvail, May be reserved for other job",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        )
    },
    # a reason that concerns the job or a group
    **{
        text: waits(text)
        for text in (
            "DependencyNeverSatisfied", "Dependency", "BeginTime", "Reservation", "BurstBufferStageIn",
            "JobArrayTaskLimit", "Licenses", "Constraints", "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit",
            "AssocMaxJobsLimit", "AssocGrpCPUMinutesLimit", "QOSGrpCpuLimit", "MaxCpuPerAccount",
            "PartitionDown", "QOSNotAllowed", "Job's account not permitted to use this partition (main allows a)",
            "AssocGrpFutureLimit", "No_suitable_topology_unit_found",
        )
    },
    # a hold
    "held: JobHeldAdmin, still pinned": held("JobHeldAdmin"),
    "held: JobHeldAdmin, without the pin": held("JobHeldAdmin", pinned=False),
    "held by an administrator, as the plugin saw": held("JobHeldAdmin", slurm_states.ADMIN_HELD_MARK),
    "held: JobHeldUser": held("JobHeldUser"),
    "held: BadConstraints": held("BadConstraints"),
    "held: launch failed requeued held": held("launch failed requeued held"),
}  # fmt: skip


class Site:
    """A bridge over a cluster on which the starts of job 1, and possibly of three more, fail."""

    def __init__(self, state_dir: Path, cause: Cause, more: bool) -> None:
        self.cause = cause
        self.cluster = FakeCluster.of(
            JOB, *OTHERS.values(), *(MORE.values() if more else ()), view=self.view, stalls=99
        )
        if cause.answer is not None:
            self.cluster.inject("start", self.answer, 99)
        self.bridge = a_bridge(
            state_dir, self.cluster, OnlyFailing(), start={"timeout_s": TIMEOUT_S, "max_failures": 3}
        )
        self.events: list[str] = []
        """Kinds of the events since the last attempt."""

    def answer(self, work: Callable[[], object]) -> object:
        answer = self.cause.answer
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    def view(self, seen: Observation) -> Observation:
        pending = (
            self.cause.shown(each) if each.job.id in {1, *MORE} and each.hold is Hold.NONE else show(each)
            for each in seen.pending
        )  # fmt: skip
        return replace(seen, pending=tuple(pending))

    def cycle(self) -> CycleReport:
        self.cluster.now_s += 1
        self.bridge.pace.at_s += 1
        report = self.bridge.cycle()
        self.events += [each.kind for each in report.bridge_events if each.kind != "mode"]
        return report

    def find_state(self, job_id: int = 1) -> LedgerState | None:
        entry = self.bridge.ledger.get(job_id)
        return entry and entry.state

    def run_until_start(self) -> str:
        """Run cycles until job 1 is started, and describe the wait."""
        for cycles in range(1, 20):
            outcomes = self.cycle().outcomes
            if any(kind == "start" and outcome.job_id == 1 for kind, outcome in outcomes):
                return f"started again after {cycles} s"
        return "not started again"

    def run_until_outcome(self) -> str:
        """Run cycles until the start is over, and describe its outcome, the jobs that back off, and the events."""
        self.bridge.mode.breaker.forget_user("alice")
        self.cause.meanwhile(self.cluster)
        report, cycles = self.cycle(), 1
        while self.find_state() is LedgerState.STARTING and cycles < 9:
            report, cycles = self.cycle(), cycles + 1

        entry, seen = self.bridge.ledger.get(1), report.observation
        assert entry is not None
        assert seen is not None
        reasons = {each.job.id: words(each.job.ineligible) for each in seen.pending}
        reasons |= {job_id: words(reason) for job_id, reason in report.backoff.reasons.items()}
        parts = [f"{entry.state.value} after {cycles} s", f"{entry.failures} failed"]
        parts += [str(reasons[1]).replace(CLASS_TEXT, "its class")] if reasons.get(1) else []
        backed_off = [what for what, job in OTHERS.items() if job.id in report.backoff.reasons]
        parts += [f"with {', '.join(backed_off)}"] if backed_off else []
        left = [what for what, job in OTHERS.items() if self.find_state(job.id) is not LedgerState.HELD]
        parts += [f"leaves {', '.join(left)}"] if left else []
        parts += ["vote"] if self.has_vote() else []
        parts += [f"events {', '.join(dict.fromkeys(self.events))}"] if self.events else []
        self.events.clear()
        return "; ".join(parts)

    def has_vote(self) -> bool:
        """Return whether the circuit breaker counts a failure of the user."""
        try:
            return self.bridge.mode.breaker.get_first_failure_s("alice") > 0
        except (KeyError, IndexError):
            return False


def list_attempts(name: str, state_dir: Path) -> Iterator[str]:
    """Yield each attempt to start job 1 with its outcome, until it is over or the third has failed."""
    for more in (False, True) if name in WITH_OTHERS else (False,):
        (folder := state_dir / str(more)).mkdir(parents=True)
        site = Site(folder, CAUSES[name], more)
        site.run_until_start()
        for attempt in ("one of four",) if more else ("first", "second", "third"):
            outcome, later = site.run_until_outcome(), site.run_until_start()
            outcome = outcome.replace(pending_reasons.normalize_reason_name(name.removeprefix("held: ")), "its reason")
            yield f"{attempt} | {outcome}; {later}"
            if later == "not started again":
                break


WITH_OTHERS = ("None", "Priority", "AssocMaxJobsLimit", "Licenses")
"""Causes that also concern three more jobs of the user at the same time."""


@pytest.mark.parametrize("name", CAUSES)
def test_failed_start_has_recorded_consequences(name: str, tmp_path: Path) -> None:
    """Changed deliberately: `python -m tests.unit.bridge.cycle.test_backoff_table`, then read the difference."""
    rows = [line.partition(" | ") for line in TABLE.read_text().splitlines()]
    assert list(list_attempts(name, tmp_path)) == [
        outcome for causes, _, outcome in rows if name in causes.split(" + ")
    ]


def write_table() -> None:
    """Record the table, with one line for all causes that have the same consequences."""
    names: dict[str, list[str]] = {}
    with TemporaryDirectory() as folder:
        for number, name in enumerate(CAUSES):
            for attempt in list_attempts(name, Path(folder) / str(number)):
                names.setdefault(attempt, []).append(name)
    TABLE.write_text("".join(f"{' + '.join(causes)} | {attempt}\n" for attempt, causes in names.items()))


if __name__ == "__main__":
    write_table()
