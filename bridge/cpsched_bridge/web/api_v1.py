"""Version 1 of what other pages and programs may ask for: its values, and the OpenAPI document made of them.

A field of version 1 never goes and never changes its meaning; further ones may come. All times ending in `_s` are
seconds of the cluster's own clock, which is Unix time beside Slurm.
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
from cpsched_bridge.web.explain import Explanation

PREFIX = "/api/v1"
_TIME = r"^[0-9:-]+$"
JobState = Literal["waiting", "running", "not_decided_on", "ended", "unknown"]
_STATES: dict[str, JobState] = {
    "queued": "waiting", "running": "running", "aside": "not_decided_on", "ended": "ended", "unknown": "unknown",
}  # fmt: skip


class Value(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Job(Value):
    """Where a job stands, and when it is expected to start."""

    id: int = Field(description="-1 where the question is no number.")
    label: str = Field(description="As the cluster's users write it, such as 123_4.")
    state: JobState
    now_s: int = Field(description="The cluster's clock at the reading that this is from.")
    sentences: list[str] = Field(description="The same in words, for people.")
    reason: str = Field(default="", description="Why it waits, in short; empty where it does not.")
    submit_s: int | None = None
    walltime_s: int | None = Field(default=None, description="The time that it asked for.")
    planned_s: int | None = Field(default=None, description="Start by the present plan; null: there is none.")
    likely_from_s: int | None = Field(default=None, description="In 8 of 10 it starts no earlier; null: not told yet.")
    likely_to_s: int | None = Field(default=None, description="In 8 of 10 it starts no later.")
    start_s: int | None = Field(default=None, description="When it started, where it runs.")
    expected_end_s: int | None = Field(default=None, description="When it is expected to end, where it runs.")
    nodes: list[str] = Field(default_factory=list, description="Where it runs.")


class Start(Value):
    """When a job would start."""

    asked: str = Field(description="What is asked for instead, in words; empty for the question itself.")
    planned_s: int | None = Field(description="Start by the present plan, delaying nobody; null: it never could.")
    likely_from_s: int | None = Field(description="In 8 of 10 such a job starts no earlier.")
    likely_to_s: int | None = Field(description="In 8 of 10 it starts no later.")
    calibrated: bool = Field(description="Whether enough told starts have come true; otherwise this is a guess.")


class When(Value):
    """When a job would start if it were submitted now, and what asking for less would bring."""

    now_s: int
    starts: list[Start] = Field(description="The question itself first.")


class CouldStart(Value):
    """What could start right now, delaying nobody."""

    whole: bool = Field(description="Whether units are whole nodes; otherwise single cores anywhere.")
    units: int
    walltime_s: int = Field(description="How long it may take.")


class Windows(Value):
    """What could start right now without delaying a job that waits."""

    now_s: int
    windows: list[CouldStart]


class Error(Value):
    """Why there is no answer."""

    error: str = Field(description="One line, for people.")


def job_of(found: Explanation, now_s: int) -> Job:
    """An explanation, in version 1."""
    job, facts = found.job, dict[str, Any]()
    if isinstance(job, page_schema.QueuedJob):
        facts = {"reason": job.why, "planned_s": job.expected_s, "likely_from_s": job.likely_from_s,
                 "likely_to_s": job.likely_to_s}  # fmt: skip
    elif isinstance(job, page_schema.RunningJob):
        facts = {"start_s": job.start_s, "expected_end_s": job.expected_end_s, "nodes": [n for n, _ in job.nodes]}
    elif job is not None:
        facts = {"reason": job.why}
    asked = job.asked if isinstance(job, page_schema.UnscheduledJobFacts) else job
    if asked is not None:
        facts |= {"submit_s": asked.submit_s, "walltime_s": asked.walltime_s}
    return Job(
        id=found.id, label=found.label, state=_STATES[found.state], now_s=now_s, sentences=found.lines(), **facts
    )  # fmt: skip


def when_of(found: Sequence[ExpectedStart], now_s: int) -> When:
    """Answers to a question, in version 1."""
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


def windows_of(found: Sequence[BackfillWindow], now_s: int) -> Windows:
    """What could start now, in version 1."""
    told = [CouldStart(whole=each.whole, units=each.units, walltime_s=each.walltime_s) for each in found]
    return Windows(now_s=now_s, windows=told)


# ---------------------------------------------------------------------------------------------------- the document


_ANSWERS: tuple[type[BaseModel], ...] = (Job, When, Windows, Error)


def document() -> dict[str, Any]:
    """The OpenAPI document of version 1, made of the values above."""
    modes: list[tuple[type[BaseModel], JsonSchemaMode]] = [(each, "serialization") for each in _ANSWERS]
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cpsched",
            "version": version("cpsched"),
            "summary": "When jobs are expected to start, and what could start now.",
            "description": "Times are seconds of the cluster's own clock, which is Unix time beside Slurm. "
            "Nothing here changes anything.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "../..", "description": "Wherever this document is from."}],
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
    "time", "query", "Time limit as sbatch takes it: minutes, H:M:S, D-H.", {"type": "string", "pattern": _TIME}, True
)
_NODES = _parameter("nodes", "query", "How many nodes.", {**_COUNT, "minimum": 1, "default": 1})
_WHOLE = _parameter("whole", "query", "1: nodes that nobody else is on.", {"type": "integer", "enum": [0, 1]})
_PARTITION = _parameter("partition", "query", "Only on the nodes of a partition.", {"type": "string"})
_AMOUNTS = {
    **_parameter(
        "amounts",
        "query",
        "What each node must have of the cluster's resources, each by its name: cores=16&memory_mib=4096&gpus=1. "
        "One core where nothing is named.",
        {"type": "object", "additionalProperties": _COUNT},
    ),
    "style": "form",
    "explode": True,
}


def _path(name: str, answer: type[Value], parameters: list[dict[str, Any]], unknown: bool = False) -> dict[str, Any]:
    found = {"200": _response(answer.__doc__, answer)}
    if unknown:
        found["404"] = _response("Nobody has heard of the job, or it is none that the reader may see.", answer)
    else:
        found["400"] = _response("The question makes no sense.", Error)
    for code, words in (
        ("403", "Nobody is known to have asked, or through nobody who is trusted (`page.user_header`)."),
        ("421", "Asked for by a name that is not in `page.hosts`."),
        ("503", "The bridge has not read the cluster, or has made no plan yet."),
    ):
        found[code] = _response(words, Error)
    return {"get": {"operationId": name, "summary": answer.__doc__, "parameters": parameters, "responses": found}}


def _response(words: str | None, value: type[Value]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{value.__name__}"}}}
    return {"description": words or "", "content": content}
