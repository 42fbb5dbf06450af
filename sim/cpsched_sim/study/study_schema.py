"""The schema of a study file.

`EXAMPLE_STUDY` is a complete file. Every list in a grid is an axis. A grid contains all combinations of its axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from cpsched_sim.input.yaml_tree import StrictFileSection
from cpsched_sim.workloads.lublin_generator import MAX_PROCESSORS, MIN_PROCESSORS

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Load = Annotated[float, Field(gt=0, le=100)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
WHOLE_TRACE, NO_SITE_POLICY = "whole", "none"


def _check_axis(value: object) -> object:
    """Reject a value that is not a list, or an empty list."""
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list")
    if not value:
        raise ValueError("must not be empty")
    return value


AS_LIST = BeforeValidator(_check_axis)

EXAMPLE_STUDY = """\
# A study: every combination in a grid is one case, replayed once and stored in the folder --out.
#   cpsched study example > study.yaml
#   cpsched study run study.yaml --out results --dry-run
#   cpsched study run study.yaml --out results
title: How much do run-time estimates help?

# By name: a file, such as KTH-SP2.swf.gz or {file: KTH-SP2.swf.gz, system: pool, max_jobs: 5000}, next to this file
# and in the folder CPSCHED_TRACES; or a synthetic workload, drawn from the case's seed.
traces:
  eurora: { generate: eurora, days: 0.5, load: 2.0 }

# Short names for dispatchers and predictors with settings; others are written as on the command line.
dispatchers:
  lookahead-slowdown: lookahead objective=slowdown

grids:
  - traces: [eurora]
    loads: [1.0]                 # 1.5: 50 % more arrivals per time
    windows: [whole]             # {days: 7, from_day: 14, count: 3}: three weeks, starting on day 15
                                 # {jobs: 1000, first: [0, 5000]}: two sequences, each on an empty cluster
    dispatchers: [easy, list-sjf, lookahead-slowdown]
    predictors: [walltime, last-two]
    seeds: [0, 1, 2]
    # systems: [pool], policies: [site.yaml]

# One more case, with its own name.
cases:
  - { name: perfect knowledge, trace: eurora, dispatcher: easy, predictor: oracle, seed: 0 }

# Combinations to omit, each with a reason for the report.
exclude:
  - { dispatcher: list-sjf, predictor: last-two, because: covered by the other two }

limits: { minutes: 5, memory_mib: 4096 }    # per case; a case that exceeds one has no result

report:
  baseline: easy / walltime
  metrics: [mean_wait_s, bsld, longest_wait_s]
  tables:
    - { title: Mean wait, metric: mean_wait_s, rows: dispatcher, columns: predictor }
  plots:
    - { title: Slowdown, metric: bsld, across: seed, lines: policy }
"""
"""The output of `cpsched study example`."""

AXES = ("trace", "system", "load", "window", "dispatcher", "predictor", "site_policy", "seed")
"""The axes that exclusions and tables can use."""
Axis = Literal["trace", "system", "load", "window", "dispatcher", "predictor", "site_policy", "seed", "policy", "case"]
"""The axes of tables. `policy` combines dispatcher and predictor."""


class StudyTraceSchema(StrictFileSection):
    """A trace: a file, or a generator with its parameters."""

    file: Text | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    system: Text | None = None
    max_jobs: Annotated[int, Field(gt=0)] | None = None
    lenient: bool = False
    format: Text | None = None
    optional: bool = False
    """Whether to exclude the trace's cases if its file is missing or different."""
    recipe: Text | None = None
    """One-line instructions for obtaining the file, shown if it is missing."""
    generate: Literal["eurora", "lublin"] | None = None
    days: Annotated[float, Field(gt=0)] | None = None
    processors: Annotated[int, Field(ge=MIN_PROCESSORS, le=MAX_PROCESSORS)] | None = None
    load: Load = 1.0

    @model_validator(mode="before")
    @classmethod
    def _read_file_name(cls, value: object) -> object:
        """Return a mapping for a trace that is given only by its file."""
        return {"file": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_source(self) -> StudyTraceSchema:
        if (self.file is None) == (self.generate is None):
            raise ValueError("must have either file or generate")
        if (self.generate == "eurora") != (self.days is not None):
            raise ValueError("days is required with generate: eurora, and not allowed otherwise")
        if (self.generate == "lublin") != (self.processors is not None):
            raise ValueError("processors is required with generate: lublin, and not allowed otherwise")
        if self.generate == "lublin" and self.max_jobs is None:
            raise ValueError("generate: lublin requires max_jobs")
        if self.generate is not None and (self.sha256 or self.format or self.lenient or self.recipe or self.optional):
            raise ValueError("sha256, format, lenient, recipe and optional require file")
        if self.file is not None and self.load != 1.0:
            raise ValueError("load requires generate; set the loads of a file in the grid")
        return self


class TraceWindowSchema(StrictFileSection):
    """`count` consecutive parts of a trace, each of `days` days, from `from_day` on."""

    days: Annotated[float, Field(gt=0)]
    from_day: Annotated[float, Field(ge=0)] = 0.0
    count: Annotated[int, Field(gt=0, le=1000)] = 1


class JobSequenceSchema(StrictFileSection):
    """Sequences of `jobs` jobs, one from each 0-based index in `first`."""

    jobs: Annotated[int, Field(gt=0)]
    first: Annotated[Sequence[Annotated[int, Field(ge=0)]], AS_LIST]


def _window_tag(value: object) -> str:
    if isinstance(value, JobSequenceSchema) or (isinstance(value, Mapping) and "jobs" in value):
        return "sequence"
    return "part" if isinstance(value, Mapping | TraceWindowSchema) else "whole"


Window = Annotated[
    Annotated[Literal["whole"], Tag("whole")]
    | Annotated[TraceWindowSchema, Tag("part")]
    | Annotated[JobSequenceSchema, Tag("sequence")],
    Discriminator(_window_tag),
]


class CaseGridSchema(StrictFileSection):
    """A grid: all combinations of the values in these lists."""

    traces: Annotated[Sequence[Text], AS_LIST]
    systems: Annotated[Sequence[Text | None], AS_LIST] = (None,)
    loads: Annotated[Sequence[Load], AS_LIST] = (1.0,)
    windows: Annotated[Sequence[Window], AS_LIST] = ("whole",)
    dispatchers: Annotated[Sequence[Text], AS_LIST]
    predictors: Annotated[Sequence[Text], AS_LIST] = ("walltime",)
    policies: Annotated[Sequence[Text], AS_LIST] = (NO_SITE_POLICY,)
    seeds: Annotated[Sequence[Seed], AS_LIST] = (0,)


class NamedCaseSchema(StrictFileSection):
    """One named case."""

    name: Text
    trace: Text
    system: Text | None = None
    load: Load = 1.0
    window: Window = "whole"
    dispatcher: Text
    predictor: Text = "walltime"
    site_policy: Text = NO_SITE_POLICY
    seed: Seed = 0


class CaseExclusionSchema(StrictFileSection):
    """An exclusion of the cases that match all axes set here."""

    because: Text
    trace: Text | None = None
    system: Text | None = None
    load: Load | None = None
    window: Text | None = None
    dispatcher: Text | None = None
    predictor: Text | None = None
    site_policy: Text | None = None
    seed: Seed | None = None

    def matched_axes(self) -> dict[str, Any]:
        """Return the axes that are set, with their values."""
        return {axis: value for axis in AXES if (value := getattr(self, axis)) is not None}

    @model_validator(mode="after")
    def _check_not_empty(self) -> CaseExclusionSchema:
        if not self.matched_axes():
            raise ValueError("must set at least one axis")
        return self


class CaseLimitSchema(StrictFileSection):
    """The limits of a case."""

    minutes: Annotated[float, Field(gt=0)] | None = None
    memory_mib: Annotated[int, Field(ge=256)] | None = None


class ReportTableSchema(StrictFileSection):
    """A table with the mean of a metric over the cases in each cell."""

    title: Text
    metric: Text
    rows: Axis = "policy"
    columns: Axis = "trace"


class ReportPlotSchema(StrictFileSection):
    """A plot of a metric's mean along an axis, with one line per value of `lines`."""

    title: Text
    metric: Text
    across: Literal["load", "seed", "window"] = "load"
    lines: Axis = "policy"


class StudyReportSchema(StrictFileSection):
    """The report's baseline, ranking metrics, tables and plots."""

    baseline: Text | None = None
    metrics: Annotated[Sequence[Text], AS_LIST] = ("mean_wait_s", "bsld", "awf", "longest_wait_s")
    tables: Sequence[ReportTableSchema] = ()
    plots: Sequence[ReportPlotSchema] = ()


class StudyFileSchema(StrictFileSection):
    """The content of a study file."""

    title: Text
    traces: Annotated[Mapping[Text, StudyTraceSchema], Field(min_length=1)]
    dispatchers: Mapping[Text, Text] = Field(default_factory=dict)
    predictors: Mapping[Text, Text] = Field(default_factory=dict)
    grids: Sequence[CaseGridSchema] = ()
    cases: Sequence[NamedCaseSchema] = ()
    exclude: Sequence[CaseExclusionSchema] = ()
    limits: CaseLimitSchema = CaseLimitSchema()
    jobs: bool = False
    """Whether to store the schedule of each case."""
    report: StudyReportSchema = StudyReportSchema()
