"""Define the values of version 1 of the HTTP API and its OpenAPI document.

Fields of version 1 are never removed and never change their meaning, but fields may be added. Times whose names end in
`_s` are in seconds on the cluster's clock, which with Slurm is Unix time.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from cpsched.errors import InvalidValue
from cpsched.forecast import BackfillWindow
from cpsched.formatting import is_unknown_time
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.web import page_schema
from cpsched_bridge.web.job_explanation import (
    ExplainedJob,
    JobExplanation,
    JobStateName,
    format_estimated_start,
    format_job_start,
    format_plan,
    has_known_end,
)

PREFIX = "/api/v1"
_TIME_PATTERN = r"^[0-9:-]+$"
JobState = Literal["waiting", "running", "not_decided_on", "ended", "unknown"]
_PUBLIC_STATE_NAMES: dict[str, JobState] = {
    "queued": "waiting", "running": "running", "aside": "not_decided_on", "ended": "ended", "unknown": "unknown",
}  # fmt: skip


class ApiValue(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Job(ApiValue):
    """A job's state and expected start."""

    id: int = Field(description="Job id; -1 if no job has the requested label.")
    label: str = Field(description="Label shown to users, such as 123_4.")
    state: JobState
    now_s: int = Field(description="The cluster's time when it was observed.")
    sentences: list[str] = Field(description="The explanation as text; empty in a list of jobs.")
    reason: str = Field(default="", description="Short pending reason; empty if the job is not pending.")
    submit_s: int | None = Field(default=None, description="Submission; null if the cluster does not report it.")
    walltime_s: int | None = Field(default=None, description="Time limit; null if the job has none.")
    start: str = Field(default="", description="When a pending job starts, as text: the 80 % interval.")
    plan: str = Field(default="", description="The planned start as text, with what it means.")
    planned_s: int | None = Field(
        default=None, description="Planned start, if every job runs as long as estimated; null if there is no plan."
    )
    likely_from_s: int | None = Field(
        default=None, description="Lower end of the 80 % interval for the start; null if not known yet."
    )
    likely_to_s: int | None = Field(default=None, description="Upper end of the 80 % interval for the start.")
    start_quantiles_s: list[int] = Field(
        default_factory=list,
        description="The 5, 10, 25, 50, 75, 90 and 95 % quantiles of the start; empty if not known yet.",
    )
    calibrated: bool = Field(
        default=False, description="Whether enough starts were observed to calibrate the interval."
    )
    user: str = Field(default="", description="Empty if the page hides names, or if the job is unknown.")
    name: str = Field(default="", description="The job's name; empty like `user`.")
    partition: str = ""
    start_s: int | None = Field(default=None, description="Start time of a running job.")
    expected_end_s: int | None = Field(default=None, description="Expected end of a running job; null if not known.")
    nodes: list[str] = Field(default_factory=list, description="Nodes of a running job.")


class Jobs(ApiValue):
    """The jobs that the reader may see, pending jobs first and in queue order."""

    now_s: int = Field(description="The cluster's time when it was observed.")
    jobs: list[Job]


class Start(ApiValue):
    """The expected start of a job."""

    asked: str = Field(description="The alternative request; empty for the request itself.")
    start: str = Field(description="When it starts, as text: the 80 % interval, or why it can never start.")
    plan: str = Field(description="The planned start as text, with what it means.")
    planned_s: int | None = Field(description="Planned start that delays no other job; null if it can never start.")
    likely_from_s: int | None = Field(description="Lower end of the 80 % interval for the start.")
    likely_to_s: int | None = Field(description="Upper end of the 80 % interval for the start.")
    start_quantiles_s: list[int] = Field(
        description="The 5, 10, 25, 50, 75, 90 and 95 % quantiles of the start; empty if it can never start."
    )
    calibrated: bool = Field(description="Whether enough starts were observed to calibrate the interval.")


class When(ApiValue):
    """The expected start of a job submitted now, and of smaller requests."""

    now_s: int
    starts: list[Start] = Field(description="The request itself first.")


class CouldStart(ApiValue):
    """A job size that could start now without delaying another job."""

    whole: bool = Field(description="Whether a unit is a whole node; otherwise, it is a core on any node.")
    units: int
    walltime_s: int = Field(description="Maximum run time.")


class Windows(ApiValue):
    """Job sizes that could start now without delaying a pending job."""

    now_s: int
    windows: list[CouldStart]


class Error(ApiValue):
    """An error response."""

    error: str = Field(description="The message, one line.")


def to_api_job(found: JobExplanation, status: page_schema.BridgeStatusView) -> Job:
    """Return an explanation as a version 1 value."""
    job, facts, now_s = found.job, dict[str, Any](), status.now_s
    if isinstance(job, page_schema.QueuedJobView):
        facts = {name: getattr(job, name)
                 for name in ("likely_from_s", "likely_to_s", "start_quantiles_s", "calibrated")}  # fmt: skip
        plan = format_plan(job.expected_s, now_s, status.predictor)
        facts |= {"reason": job.why, "start": format_job_start(job, now_s), "plan": plan, "planned_s": job.expected_s}
    elif isinstance(job, page_schema.RunningJobView):
        end_s = job.expected_end_s if has_known_end(job) else None
        facts = {"start_s": job.start_s, "expected_end_s": end_s, "nodes": [n for n, _ in job.nodes]}
    elif job is not None:
        facts = {"reason": job.why}
    asked = job.asked if isinstance(job, page_schema.UnscheduledJobView) else job
    if asked is not None:
        facts |= {
            "submit_s": None if is_unknown_time(asked.submit_s, now_s) else asked.submit_s,
            "walltime_s": None if asked.walltime_s == UNLIMITED_WALLTIME_S else asked.walltime_s,
        }
    if job is not None:
        facts |= {"user": job.user, "name": job.name, "partition": job.partition}
    return Job(
        id=found.id, label=found.label, state=_PUBLIC_STATE_NAMES[found.state], now_s=now_s,
        sentences=found.format_lines(),
        **facts,
    )  # fmt: skip


def to_api_jobs(view: page_schema.StatusPageView, user: str = "") -> Jobs:
    """Return the jobs of `user`, or all jobs, as a version 1 value.

    Raise `InvalidValue` if one user's jobs are requested and the page hides names.
    """
    if user and view.status.users_hidden:
        raise InvalidValue("user", user, "cannot select jobs by user because page.users is hide")
    kinds: tuple[tuple[JobStateName, Sequence[ExplainedJob]], ...] = (
        ("queued", view.queue), ("aside", view.aside), ("running", view.running),
    )  # fmt: skip
    found = [
        to_api_job(JobExplanation(job.id, job.label, state, (), job), view.status)
        for state, jobs in kinds for job in jobs if user in ("", job.user)
    ]  # fmt: skip
    return Jobs(now_s=view.status.now_s, jobs=found)


def to_api_start_estimates(found: Sequence[SubmissionStartEstimate], now_s: int, predictor: str) -> When:
    """Return expected starts as a version 1 value."""
    return When(now_s=now_s, starts=[_make_api_start(each, now_s, predictor) for each in found])


def _make_api_start(expected: SubmissionStartEstimate, now_s: int, predictor: str) -> Start:
    interval = expected.interval
    return Start(
        asked=expected.asked,
        start=format_estimated_start(expected, now_s),
        plan=format_plan(expected.planned_s, now_s, predictor),
        planned_s=expected.planned_s,
        likely_from_s=interval.from_s if interval else None,
        likely_to_s=interval.to_s if interval else None,
        start_quantiles_s=interval.published_quantiles_s if interval else [],
        calibrated=interval is not None and interval.calibrated,
    )


def to_api_backfill_windows(found: Sequence[BackfillWindow], now_s: int) -> Windows:
    """Return backfill windows as a version 1 value."""
    rows = [CouldStart(whole=each.whole, units=each.units, walltime_s=each.walltime_s) for each in found]
    return Windows(now_s=now_s, windows=rows)


# ---------------------------------------------------------------------------------------------------- the document


_RESPONSE_TYPES: tuple[type[BaseModel], ...] = (Job, Jobs, When, Windows, Error)


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of version 1."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "serialization") for each in _RESPONSE_TYPES]
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cpsched",
            "version": version("cpsched"),
            "summary": "Expected starts of jobs, and job sizes that could start now.",
            "description": "Times are in seconds on the cluster's clock, which with Slurm is Unix time. "
            "All requests are read-only.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "../..", "description": "The host that served this document."}],
        "paths": {
            f"{PREFIX}/jobs": _make_openapi_path("jobs", Jobs, [_USER_PARAMETER]),
            f"{PREFIX}/jobs/{{job}}": _make_openapi_path("job", Job, [_JOB_PARAMETER], unknown=True),
            f"{PREFIX}/when": _make_openapi_path(
                "when",
                When,
                [_TIME_PARAMETER, _NODES_PARAMETER, _WHOLE_PARAMETER, _PARTITION_PARAMETER, _AMOUNTS_PARAMETER],
            ),
            f"{PREFIX}/windows": _make_openapi_path("windows", Windows, [_PARTITION_PARAMETER]),
        },
        "components": {"schemas": found["$defs"]},
    }


def _make_openapi_parameter(
    name: str, where: str, sentence: str, kind: dict[str, Any], required: bool = False
) -> dict[str, Any]:
    return {"name": name, "in": where, "description": sentence, "required": required, "schema": kind}


_COUNT_SCHEMA = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_JOB_PARAMETER = _make_openapi_parameter(
    "job", "path", "A job's id, or its label, such as 123_4.", {"type": "string"}, required=True
)
_USER_PARAMETER = _make_openapi_parameter("user", "query", "Return only this user's jobs.", {"type": "string"})
_TIME_PARAMETER = _make_openapi_parameter(
    "time",
    "query",
    "Time limit in sbatch format: minutes, H:M:S, or D-H.",
    {"type": "string", "pattern": _TIME_PATTERN},
    True,
)
_NODES_PARAMETER = _make_openapi_parameter(
    "nodes", "query", "Number of nodes.", {**_COUNT_SCHEMA, "minimum": 1, "default": 1}
)
_WHOLE_PARAMETER = _make_openapi_parameter(
    "whole", "query", "1 requests exclusive nodes.", {"type": "integer", "enum": [0, 1]}
)
_PARTITION_PARAMETER = _make_openapi_parameter(
    "partition", "query", "Use only the nodes in this partition.", {"type": "string"}
)
_AMOUNTS_PARAMETER = {
    **_make_openapi_parameter(
        "amounts",
        "query",
        "Amounts per node, by the cluster's resource names: cores=16&memory_mib=4096&gpus=1. Default: one core.",
        {"type": "object", "additionalProperties": _COUNT_SCHEMA},
    ),
    "style": "form",
    "explode": True,
}


def _make_openapi_path(
    name: str, answer: type[ApiValue], parameters: list[dict[str, Any]], unknown: bool = False
) -> dict[str, Any]:
    found = {"200": _make_openapi_response(answer.__doc__, answer)}
    if unknown:
        found["404"] = _make_openapi_response("The job is unknown, or the reader may not see it.", answer)
    else:
        found["400"] = _make_openapi_response("The request is invalid.", Error)
    for code, words in (
        ("403", "The request does not name a user through a trusted proxy (`page.user_header`)."),
        ("421", "The host name is not in `page.hosts`."),
        ("503", "The bridge has not read the cluster yet, or has no plan yet."),
    ):
        found[code] = _make_openapi_response(words, Error)
    return {"get": {"operationId": name, "summary": answer.__doc__, "parameters": parameters, "responses": found}}


def _make_openapi_response(text: str | None, value: type[ApiValue]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{value.__name__}"}}}
    return {"description": text or "", "content": content}
