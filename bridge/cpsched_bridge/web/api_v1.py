"""Define the values of version 1 of the HTTP API and its OpenAPI document.

A job is a `JobView` with its explanation as text. Fields of version 1 are never removed and never change their meaning,
but fields may be added. Times whose names end in `_s` are in seconds on the cluster's clock, which with Slurm is Unix
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from cpsched.errors import InvalidValue
from cpsched.forecast import BackfillWindow
from cpsched_bridge.telemetry.start_forecasts import SubmissionStartEstimate
from cpsched_bridge.views.job_explanation import Explanation, format_estimated_start, format_plan, summarize_job
from cpsched_bridge.views.job_view import JobsView, JobView, job_to_json, make_forecast_fields

PREFIX = "/api/v1"
_TIME_PATTERN = r"^[0-9:-]+$"
_EXPLANATION_FIELDS = {
    "now_s": ("integer", "The cluster's time when it was observed."),
    "reason": ("string", "Short pending reason; empty if the job starts now or is not pending."),
    "start": ("string", "When a pending job starts, as text: the 80 % interval."),
    "plan": ("string", "The planned start as text, with what it means."),
    "sentences": ("array", "The explanation as text; empty in a list of jobs."),
}
"""Type and description of the fields of a job that are not in `JobView`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """The expected start of a hypothetical job."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    request: str
    """The alternative request; empty for the request itself."""
    start: str
    """When it starts, as text: the 80 % interval, or why it can never start."""
    plan: str
    """The planned start as text, with what it means."""
    planned_s: int | None
    """Planned start that delays no other job; null if it can never start."""
    likely_from_s: int | None = None
    """Lower end of the 80 % interval for the start; null if it can never start."""
    likely_to_s: int | None = None
    """Upper end of the 80 % interval for the start."""
    start_quantiles_s: tuple[int, ...] = ()
    """The 5, 10, 25, 50, 75, 90 and 95 % quantiles of the start; empty if it can never start."""
    calibrated: bool = False
    """Whether enough starts were observed to calibrate the interval."""


def explained_job_to_json(explanation: Explanation, now_s: int) -> dict[str, Any]:
    """Return a job with its explanation."""
    return job_to_json(explanation.job) | {
        "now_s": now_s,
        "start": explanation.start,
        "plan": explanation.plan,
        "sentences": explanation.format_lines(),
    }


def jobs_to_json(jobs: JobsView, users_hidden: bool, user: str = "") -> dict[str, Any]:
    """Return the jobs of `user`, or all jobs, pending jobs first and in queue order.

    Raise `InvalidValue` if one user's jobs are requested and the page hides names.
    """
    if user and users_hidden:
        raise InvalidValue("user", user, "cannot select jobs by user because page.users is hide")
    selected = [job for job in (*jobs.waiting, *jobs.unscheduled, *jobs.running) if user in ("", job.user)]
    return {
        "now_s": jobs.now_s,
        "jobs": [explained_job_to_json(summarize_job(job, jobs), jobs.now_s) for job in selected],
    }


def start_estimates_to_json(estimates: Sequence[SubmissionStartEstimate], now_s: int, predictor: str) -> dict[str, Any]:
    """Return the expected starts of a job that is submitted now, and of smaller requests."""
    starts = [
        StartEstimate(
            request=estimate.request,
            start=format_estimated_start(estimate, now_s),
            plan=format_plan(estimate.planned_s, now_s, predictor),
            planned_s=estimate.planned_s,
            **make_forecast_fields(estimate.interval),
        )
        for estimate in estimates
    ]
    return {"now_s": now_s, "starts": list(map(asdict, starts))}


def backfill_windows_to_json(windows: Sequence[BackfillWindow], now_s: int) -> dict[str, Any]:
    """Return the job sizes that could start now without delaying a pending job."""
    return {"now_s": now_s, "windows": list(map(asdict, windows))}


# ---------------------------------------------------------------------------------------------------- the document


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of version 1."""
    schemas = _make_schemas()
    job_parameters = [_TIME_PARAMETER, _NODES_PARAMETER, _EXCLUSIVE_PARAMETER, _PARTITION_PARAMETER, _AMOUNTS_PARAMETER]
    paths = {
        "/jobs": _make_openapi_path("Jobs", schemas, [_USER_PARAMETER]),
        "/jobs/{job}": _make_openapi_path("Job", schemas, [_JOB_PARAMETER], unknown=True),
        "/when": _make_openapi_path("When", schemas, job_parameters),
        "/windows": _make_openapi_path("Windows", schemas, [_PARTITION_PARAMETER]),
    }
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
        "paths": {PREFIX + path: operations for path, operations in paths.items()},
        "components": {"schemas": schemas},
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
_EXCLUSIVE_PARAMETER = _make_openapi_parameter(
    "exclusive", "query", "1 requests exclusive nodes.", {"type": "integer", "enum": [0, 1]}
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


def _make_schemas() -> dict[str, Any]:
    """Return the schemas of the responses by name."""
    schemas: dict[str, Any] = {}
    for name, value in (("Job", JobView), ("StartEstimate", StartEstimate), ("BackfillWindow", BackfillWindow)):
        adapter = TypeAdapter(value)
        schema = adapter.json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {name: schema}
    for name, (kind, description) in _EXPLANATION_FIELDS.items():
        items = {"items": {"type": "string"}} if kind == "array" else {}
        schemas["Job"]["properties"][name] = {"type": kind, "description": description, **items}
    schemas.pop("PendingReason")
    schemas.pop("PendingCode")
    schemas["Jobs"] = _make_list_schema("The jobs that the reader may see, pending jobs first.", "jobs", "Job")
    schemas["When"] = _make_list_schema(
        "The expected start of a job submitted now, and of smaller requests. The request itself is first.",
        "starts",
        "StartEstimate",
    )
    schemas["Windows"] = _make_list_schema(
        "Job sizes that could start now without delaying a pending job.", "windows", "BackfillWindow"
    )
    error = {"type": "string", "description": "The message, one line."}
    schemas["Error"] = {"type": "object", "description": "An error response.", "properties": {"error": error}}
    return schemas


def _make_list_schema(description: str, key: str, element: str) -> dict[str, Any]:
    now_s = {"type": "integer", "description": "The cluster's time when it was observed."}
    rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{element}"}}
    return {"type": "object", "description": description, "properties": {"now_s": now_s, key: rows}}


def _make_openapi_path(
    response: str, schemas: dict[str, Any], parameters: list[dict[str, Any]], unknown: bool = False
) -> dict[str, Any]:
    description = schemas[response]["description"]
    responses = {"200": _make_openapi_response(description, response)}
    if unknown:
        responses["404"] = _make_openapi_response("The job is unknown, or the reader may not see it.", response)
    else:
        responses["400"] = _make_openapi_response("The request is invalid.", "Error")
    for code, text in (
        ("403", "The request does not name a user through a trusted proxy (`page.user_header`)."),
        ("421", "The host name is not in `page.hosts`."),
        ("503", "The bridge has not read the cluster yet, or has no plan yet."),
    ):
        responses[code] = _make_openapi_response(text, "Error")
    operation = {"operationId": response.lower(), "summary": description, "parameters": parameters}
    return {"get": operation | {"responses": responses}}


def _make_openapi_response(text: str, schema: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}
