"""Define the values of version 1 of the HTTP API, and generate the OpenAPI document from them.

Fields of version 1 are never removed and never change their meaning, but fields may be added. Times whose names end in
`_s` are in seconds on the cluster's clock, which with Slurm is Unix time.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from cpsched.forecast import BackfillWindow
from cpsched_bridge.telemetry.start_forecasts import ExpectedStart
from cpsched_bridge.web import page_schema
from cpsched_bridge.web.explain import JobExplanation

PREFIX = "/api/v1"
_TIME = r"^[0-9:-]+$"
JobState = Literal["waiting", "running", "not_decided_on", "ended", "unknown"]
_STATES: dict[str, JobState] = {
    "queued": "waiting", "running": "running", "aside": "not_decided_on", "ended": "ended", "unknown": "unknown",
}  # fmt: skip


class Value(BaseModel):
    """A response, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Job(Value):
    """A job's state and expected start."""

    id: int = Field(description="Job id; -1 if the request has no number.")
    label: str = Field(description="Name that users see, such as 123_4.")
    state: JobState
    now_s: int = Field(description="The cluster's clock at the observation.")
    sentences: list[str] = Field(description="The explanation as text.")
    reason: str = Field(default="", description="Short pending reason; empty if the job is not pending.")
    submit_s: int | None = None
    walltime_s: int | None = Field(default=None, description="Time limit.")
    planned_s: int | None = Field(default=None, description="Planned start; null: no plan.")
    likely_from_s: int | None = Field(
        default=None, description="Begin of the 80 % interval of the start; null: not yet."
    )
    likely_to_s: int | None = Field(default=None, description="End of the 80 % interval of the start.")
    start_s: int | None = Field(default=None, description="Start time of a running job.")
    expected_end_s: int | None = Field(default=None, description="Expected end of a running job.")
    nodes: list[str] = Field(default_factory=list, description="Nodes of a running job.")


class Start(Value):
    """The expected start of a job."""

    asked: str = Field(description="The alternative request; empty for the request itself.")
    planned_s: int | None = Field(description="Planned start that delays no other job; null: never.")
    likely_from_s: int | None = Field(description="Begin of the 80 % interval of the start.")
    likely_to_s: int | None = Field(description="End of the 80 % interval of the start.")
    calibrated: bool = Field(description="Whether enough starts were observed to calibrate the interval.")


class When(Value):
    """The expected start of a job submitted now, and of smaller requests."""

    now_s: int
    starts: list[Start] = Field(description="The request itself first.")


class CouldStart(Value):
    """A size that could start now without delaying another job."""

    whole: bool = Field(description="Whether units are whole nodes; otherwise single cores on any node.")
    units: int
    walltime_s: int = Field(description="Maximum run time.")


class Windows(Value):
    """Sizes that could start now without delaying a pending job."""

    now_s: int
    windows: list[CouldStart]


class Error(Value):
    """An error."""

    error: str = Field(description="The message, one line.")


def to_job(found: JobExplanation, now_s: int) -> Job:
    """Return an explanation as a version 1 value."""
    job, facts = found.job, dict[str, Any]()
    if isinstance(job, page_schema.QueuedJobView):
        facts = {"reason": job.why, "planned_s": job.expected_s, "likely_from_s": job.likely_from_s,
                 "likely_to_s": job.likely_to_s}  # fmt: skip
    elif isinstance(job, page_schema.RunningJobView):
        facts = {"start_s": job.start_s, "expected_end_s": job.expected_end_s, "nodes": [n for n, _ in job.nodes]}
    elif job is not None:
        facts = {"reason": job.why}
    asked = job.asked if isinstance(job, page_schema.UnscheduledJobView) else job
    if asked is not None:
        facts |= {"submit_s": asked.submit_s, "walltime_s": asked.walltime_s}
    return Job(
        id=found.id, label=found.label, state=_STATES[found.state], now_s=now_s, sentences=found.lines(), **facts
    )  # fmt: skip


def to_when(found: Sequence[ExpectedStart], now_s: int) -> When:
    """Return expected starts as a version 1 value."""
    return When(now_s=now_s, starts=[_start(each) for each in found])


def _start(expected: ExpectedStart) -> Start:
    told = expected.interval
    return Start(
        asked=expected.asked,
        planned_s=expected.planned_s,
        likely_from_s=told.from_s if told else None,
        likely_to_s=told.to_s if told else None,
        calibrated=told is not None and told.calibrated,
    )


def to_windows(found: Sequence[BackfillWindow], now_s: int) -> Windows:
    """Return backfill windows as a version 1 value."""
    told = [CouldStart(whole=each.whole, units=each.units, walltime_s=each.walltime_s) for each in found]
    return Windows(now_s=now_s, windows=told)


# ---------------------------------------------------------------------------------------------------- the document


_ANSWERS: tuple[type[BaseModel], ...] = (Job, When, Windows, Error)


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of version 1."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "serialization") for each in _ANSWERS]
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cpsched",
            "version": version("cpsched"),
            "summary": "Expected starts of jobs, and sizes that could start now.",
            "description": "Times are seconds of the cluster's clock, which is Unix time with Slurm. "
            "All requests are read-only.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "../..", "description": "The host that served this document."}],
        "paths": {
            f"{PREFIX}/jobs/{{job}}": _path("job", Job, [_JOB], unknown=True),
            f"{PREFIX}/when": _path("when", When, [_LIMIT, _NODES, _WHOLE, _PARTITION, _AMOUNTS]),
            f"{PREFIX}/windows": _path("windows", Windows, [_PARTITION]),
        },
        "components": {"schemas": found["$defs"]},
    }


def _parameter(name: str, where: str, sentence: str, kind: dict[str, Any], required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": sentence, "required": required, "schema": kind}


_COUNT = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_JOB = _parameter("job", "path", "A job's id, or its label, such as 123_4.", {"type": "string"}, required=True)
_LIMIT = _parameter(
    "time", "query", "Time limit in sbatch's form: minutes, H:M:S, D-H.", {"type": "string", "pattern": _TIME}, True
)
_NODES = _parameter("nodes", "query", "Number of nodes.", {**_COUNT, "minimum": 1, "default": 1})
_WHOLE = _parameter("whole", "query", "1: exclusive nodes.", {"type": "integer", "enum": [0, 1]})
_PARTITION = _parameter("partition", "query", "Use only the nodes of this partition.", {"type": "string"})
_AMOUNTS = {
    **_parameter(
        "amounts",
        "query",
        "Amounts per node by the cluster's resource names: cores=16&memory_mib=4096&gpus=1. Default: one core.",
        {"type": "object", "additionalProperties": _COUNT},
    ),
    "style": "form",
    "explode": True,
}


def _path(name: str, answer: type[Value], parameters: list[dict[str, Any]], unknown: bool = False) -> dict[str, Any]:
    found = {"200": _response(answer.__doc__, answer)}
    if unknown:
        found["404"] = _response("The job is unknown, or the reader may not see it.", answer)
    else:
        found["400"] = _response("The request is invalid.", Error)
    for code, words in (
        ("403", "The request does not name a user through a trusted proxy (`page.user_header`)."),
        ("421", "The host name is not in `page.hosts`."),
        ("503", "The bridge has not read the cluster, or has no plan yet."),
    ):
        found[code] = _response(words, Error)
    return {"get": {"operationId": name, "summary": answer.__doc__, "parameters": parameters, "responses": found}}


def _response(words: str | None, value: type[Value]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{value.__name__}"}}}
    return {"description": words or "", "content": content}
