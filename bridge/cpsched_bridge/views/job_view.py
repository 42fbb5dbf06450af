"""Define a job as users see it. The page, version 1 of the API, the commands and explanations share this value.

A value that is unknown or does not apply is None. Times whose names end in `_s` are in seconds on the cluster's clock,
which with Slurm is Unix time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from cpsched.forecast import StartForecast
from cpsched.formatting import is_unknown_time
from cpsched.model import Cluster, Job, NodeSetCondition, PendingReason, Placement
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S
from cpsched_bridge.store.journal_reader import is_job_id_text
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.telemetry.reason_kinds import NO_REASON_GIVEN, classify_reason, format_reason

_MAX_TEXT_CHARS = 500
NodeUnits = tuple[tuple[str, int], ...]
"""Node names and units per node."""


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """Pending, and scheduled by the bridge."""
    RUNNING = "running"
    UNSCHEDULED = "unscheduled"
    """Pending, but not scheduled by the bridge."""
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequestView:
    """A job's request."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    units: int
    """Number of equal units: nodes, if each unit needs its own node, and tasks otherwise."""
    amounts: Mapping[str, int]
    """Amounts per unit, by resource."""
    distinct: bool = False
    """Whether every unit needs its own node."""
    exclusive: bool = False
    """Whether the job needs exclusive nodes."""
    nodes_from: tuple[NodeSetCondition, ...] = ()
    """Conditions on the job's nodes, as kind and name; empty if all nodes are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with its state, its plan and its forecast."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    id: int
    """Job id; -1 if no job has the requested label."""
    label: str
    """Label shown to users, such as 123_4; the id if the cluster has no other label."""
    state: JobState
    user: str = ""
    """Empty if the page hides names, or if the job is unknown."""
    account: str = ""
    """Empty like `user`."""
    name: str = ""
    """The job's name; empty like `user`."""
    partition: str = ""
    qos: str = ""
    """Empty if the site's priorities are not read."""
    request: JobRequestView | None = None
    """The request; null if the bridge does not model the job."""
    submit_s: int | None = None
    """Submission; null if the cluster does not report it."""
    walltime_s: int | None = None
    """Time limit; null if the job has none, or if the request is unknown."""
    estimate_s: int | None = None
    """Predicted run time of a pending job; null if it has no limit and no prediction."""
    position: int | None = None
    """Position of a waiting job in the queue, from 1."""
    priority: int = 0
    """The site's priority; 0 if jobs are not ranked."""
    kind: str = ""
    """Kind of the pending reason, as in the metric cpsched_waiting_jobs; empty like `reason`."""
    reason: PendingReason | None = None
    """Pending reason; null if the job starts now or is not pending."""
    waits_for: tuple[int, ...] = ()
    """Ids of running jobs that must end, and of pending jobs that start first."""
    planned_s: int | None = None
    """Planned start, if every job runs as long as estimated; null if there is no plan."""
    first_planned_s: int | None = None
    """The first planned start."""
    likely_from_s: int | None = None
    """Lower end of the 80 % interval for the start; null if not known yet."""
    likely_to_s: int | None = None
    """Upper end of the 80 % interval for the start."""
    start_quantiles_s: tuple[int, ...] = ()
    """The 5, 10, 25, 50, 75, 90 and 95 % quantiles of the start; empty if not known yet."""
    calibrated: bool = False
    """Whether enough starts were observed to calibrate the interval."""
    nodes: NodeUnits = ()
    """Node names and units per node, of a running job and of a job that starts now."""
    start_s: int | None = None
    """Start of a running or ended job."""
    expected_end_s: int | None = None
    """Expected end of a running job; null if it has no limit and no prediction."""
    end_s: int | None = None
    """End of an ended job."""
    preemptors: str = ""
    """Group whose jobs may preempt it, such as `QOS high`; empty if none."""
    checkpoint_s: int | None = None
    """Time of its last checkpoint, if it may be preempted."""

    @property
    def starts_now(self) -> bool:
        """Whether the job is pending, and the decision starts it now."""
        return self.state is JobState.WAITING and self.reason is None

    @property
    def reason_text(self) -> str:
        """The pending reason as text; empty if the job starts now or is not pending."""
        if self.reason is None:
            return ""
        return format_reason(self.reason, self.request is not None and self.request.distinct)


_JOB_VIEW_ADAPTER = TypeAdapter(JobView)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsView:
    """All jobs at one instant, as one reader may see them."""

    now_s: int
    mode: str
    predictor: str
    waiting: Sequence[JobView] = ()
    """In the order of the queue."""
    running: Sequence[JobView] = ()
    unscheduled: Sequence[JobView] = ()
    ended: Sequence[JobView] = ()
    """Jobs that ended within the past hour."""
    reader: str = ""
    """The user whose jobs are shown (`page.user_header`); empty if all jobs are shown."""

    def find(self, text: str) -> JobView:
        """Return the job with this id or label. Its state is `UNKNOWN` if there is none."""
        wanted = text.strip()
        for jobs in (self.waiting, self.running, self.unscheduled, self.ended):
            for job in jobs:
                if wanted in (job.label, str(job.id)):
                    return job
        id = int(wanted) if is_job_id_text(wanted) else -1
        return JobView(id=id, label=text[:100], state=JobState.UNKNOWN)


def make_job_fields(job: Job, label: str, cluster: Cluster, now_s: int, hidden: bool = False) -> dict[str, Any]:
    """Return the fields of a `JobView` that are facts of the job. With `hidden`, omit names of users.

    Users choose names, so texts have at most 500 characters, and those that UTF-8 cannot encode are escaped.
    """
    user, account, name = ("", "", "") if hidden else map(sanitize_text, (job.user, job.account, job.name))
    request = job.request
    return {
        "id": job.id,
        "label": sanitize_text(label) or str(job.id),
        "user": user,
        "account": account,
        "name": name,
        "partition": sanitize_text(job.queue),
        "qos": sanitize_text(job.qos),
        "priority": job.priority,
        "request": JobRequestView(
            units=request.units,
            amounts=dict(zip(cluster.resources, request.per_unit, strict=True)),
            distinct=request.distinct,
            exclusive=request.exclusive,
        ),
        "submit_s": None if is_unknown_time(job.submit_s, now_s) else job.submit_s,
        "walltime_s": get_known_duration_s(job.walltime_s),
    }


def make_reason_fields(reason: PendingReason | None) -> dict[str, Any]:
    """Return the reason of a waiting job and its kind. A job without a reason starts now."""
    return {"kind": "", "reason": None} if reason is None else {"kind": classify_reason(reason), "reason": reason}


def job_to_json(job: JobView) -> dict[str, Any]:
    """Return a job as JSON, with its pending reason as text."""
    fields: dict[str, Any] = _JOB_VIEW_ADAPTER.dump_python(job, mode="json", exclude={"reason"})
    return fields | {"reason": job.reason_text}


def make_forecast_fields(forecast: StartForecast | None) -> dict[str, Any]:
    """Return the 80 % interval and the quantiles of a forecast, if there is one."""
    if forecast is None:
        return {}
    return {
        "likely_from_s": forecast.from_s,
        "likely_to_s": forecast.to_s,
        "start_quantiles_s": tuple(forecast.published_quantiles_s),
        "calibrated": forecast.calibrated,
    }


def get_known_duration_s(duration_s: int) -> int | None:
    """Return a time limit or an estimate, or None for a job without a limit."""
    return None if duration_s == UNLIMITED_WALLTIME_S else duration_s


def get_known_end_s(start_s: int, end_s: int) -> int | None:
    """Return the expected end of a running job, or None if it has no limit and no prediction."""
    return None if end_s - start_s >= UNLIMITED_WALLTIME_S else end_s


def find_first_unknown_end_s(now_s: int, runs: Iterable[tuple[int, int]]) -> int:
    """Return the first time that stands for the unknown end of a job without a limit and a prediction.

    `runs` lists start and expected end of the running jobs. No later start in the plan is known.
    """
    unknown = [end_s for start_s, end_s in runs if end_s - start_s >= UNLIMITED_WALLTIME_S]
    return min([*unknown, now_s + UNLIMITED_WALLTIME_S])


def sanitize_text(text: str) -> str:
    """Return `text` cut to the maximum length, with unencodable characters escaped."""
    return text[:_MAX_TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def name_nodes(placement: Placement, cluster: Cluster) -> NodeUnits:
    """Return a placement with the names of its nodes."""
    return tuple((cluster.node_names[node], units) for node, units in placement)


def view_recorded_jobs(record: RoundRecord) -> JobsView:
    """Return the waiting and running jobs of a recorded round."""
    cluster, now_s, estimates = record.cluster, record.now_s, record.estimates
    first_s = record.memory.get("first_s", {}) if isinstance(record.memory, dict) else {}

    runs = [(each.start_s, each.start_s + estimates[each.job.id]) for each in record.running]
    endless_s = find_first_unknown_end_s(now_s, runs)
    known_plan = {job_id: start_s for job_id, start_s in record.plan.items() if start_s < endless_s}

    waiting = []
    for position, job in enumerate(record.queue, start=1):
        wait, starts = record.waits.get(job.id), job.id in record.starts
        reason = NO_REASON_GIVEN if wait is None else wait.reason
        waiting.append(
            JobView(
                **make_job_fields(job, record.get_job_name(job.id), cluster, now_s),
                **make_reason_fields(None if starts else reason),
                state=JobState.WAITING,
                position=position,
                estimate_s=get_known_duration_s(estimates[job.id]),
                waits_for=() if wait is None else tuple(wait.waits_for),
                nodes=name_nodes(record.starts.get(job.id, ()), cluster),
                planned_s=now_s if starts else known_plan.get(job.id),
                first_planned_s=first_s.get(str(job.id)),
            )
        )

    running = [
        JobView(
            **make_job_fields(each.job, record.get_job_name(each.job.id), cluster, now_s),
            state=JobState.RUNNING,
            nodes=name_nodes(each.placement, cluster),
            start_s=each.start_s,
            expected_end_s=get_known_end_s(each.start_s, each.start_s + estimates[each.job.id]),
        )
        for each in record.running
    ]
    return JobsView(now_s=now_s, mode=record.mode, predictor=record.policy.predictor, waiting=waiting, running=running)
