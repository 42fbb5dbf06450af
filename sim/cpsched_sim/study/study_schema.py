"""The words of a study's file: traces, grids, named cases, exclusions, limits, what the report shows.

`EXAMPLE` is a whole file. Every list of a grid is an axis, and a grid stands for all combinations of its axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from cpsched_sim.workloads.lublin import LEAST_MACHINE, MOST_MACHINE

STRICT = ConfigDict(extra="forbid", frozen=True)
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Load = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
WHOLE, NONE = "whole", "none"


def _listed(value: object) -> object:
    """What pydantic would say in its own words of an axis without values."""
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list")
    if not value:
        raise ValueError("must not be empty")
    return value


LISTED = BeforeValidator(_listed)

EXAMPLE = """\
# A study: every combination of a grid is one case, replayed once and kept in the folder of --out.
#   cpsched study example > study.yaml
#   cpsched study run study.yaml --out results --dry-run
#   cpsched study run study.yaml --out results
title: What do estimates of run times bring?

# By name: a file, {file: KTH-SP2.swf.gz, sha256: ..., system: pool, max_jobs: 5000}, which is looked for beside this
# file and in the folder that CPSCHED_TRACES names; or a made-up workload. A seed of a case draws another workload.
traces:
  eurora: { generate: eurora, days: 0.5, load: 2.0 }

# Short names for dispatchers and predictors with settings; others are named as on the command line.
dispatchers:
  lookahead-slowdown: lookahead objective=slowdown

grids:
  - traces: [eurora]
    loads: [1.0]                 # 1.5: arrivals half as dense again
    windows: [whole]             # {days: 7, from_day: 14, count: 3}: three weeks from the fifteenth day on
    dispatchers: [easy, list-sjf, lookahead-slowdown]
    predictors: [walltime, last-two]
    seeds: [0, 1, 2]
    # systems: [pool], policies: [site.yaml]

# One case more, under a name of its own.
cases:
  - { name: what knowing would bring, trace: eurora, dispatcher: easy, predictor: oracle, seed: 0 }

# Combinations that are left out, each with the reason, which the report repeats.
exclude:
  - { dispatcher: list-sjf, predictor: last-two, because: shown by the other two already }

limits: { minutes: 5, memory_mib: 4096 }    # of a case; one that needs more has ended without a result

report:
  baseline: easy / walltime
  metrics: [mean_wait_s, bsld, longest_wait_s]
  tables:
    - { title: Mean wait, metric: mean_wait_s, rows: dispatcher, columns: predictor }
  plots:
    - { title: Slowdown, metric: bsld, across: seed, lines: policy }
"""
"""What `cpsched study example` prints."""

AXES = ("trace", "system", "load", "window", "dispatcher", "predictor", "site_policy", "seed")
"""What tells the cases of a study apart, in the words of exclusions and tables."""
Axis = Literal["trace", "system", "load", "window", "dispatcher", "predictor", "site_policy", "seed", "policy", "case"]
"""What tables are laid out by; `policy` is dispatcher and predictor together."""


class TraceSchema(BaseModel):
    """A trace: a file, or how to make one up."""

    model_config = STRICT
    file: Text | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    system: Text | None = None
    max_jobs: Annotated[int, Field(gt=0)] | None = None
    lenient: bool = False
    format: Text | None = None
    optional: bool = False
    """Whether its cases are left out where the file is missing, or another one."""
    recipe: Text | None = None
    """How to get the file, in a line: told where it is missing."""
    generate: Literal["eurora", "lublin"] | None = None
    days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    processors: Annotated[int, Field(ge=LEAST_MACHINE, le=MOST_MACHINE)] | None = None
    load: Load = 1.0

    @model_validator(mode="after")
    def _is_one_of_both(self) -> TraceSchema:
        if (self.file is None) == (self.generate is None):
            raise ValueError("must have file or generate, and not both")
        if (self.generate == "eurora") != (self.days is not None):
            raise ValueError("days belong to generate: eurora, which needs them")
        if (self.generate == "lublin") != (self.processors is not None):
            raise ValueError("processors belong to generate: lublin, which needs them")
        if self.generate == "lublin" and self.max_jobs is None:
            raise ValueError("generate: lublin needs max_jobs")
        if self.generate is not None and (self.sha256 or self.format or self.lenient or self.recipe or self.optional):
            raise ValueError("sha256, format, lenient, recipe and optional belong to a file")
        if self.file is not None and self.load != 1.0:
            raise ValueError("load belongs to generate; the loads of a file stand in the grid")
        return self


class WindowSchema(BaseModel):
    """`count` parts of a trace of so many days each, one after the other from `from_day` on."""

    model_config = STRICT
    days: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    from_day: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    count: Annotated[int, Field(gt=0, le=1000)] = 1


Window = Annotated[
    Annotated[Literal["whole"], Tag("whole")] | Annotated[WindowSchema, Tag("part")],
    Discriminator(lambda value: "part" if isinstance(value, Mapping | WindowSchema) else "whole"),
]


class GridSchema(BaseModel):
    """All combinations of these lists."""

    model_config = STRICT
    traces: Annotated[Sequence[Text], LISTED]
    systems: Annotated[Sequence[Text | None], LISTED] = (None,)
    loads: Annotated[Sequence[Load], LISTED] = (1.0,)
    windows: Annotated[Sequence[Window], LISTED] = ("whole",)
    dispatchers: Annotated[Sequence[Text], LISTED]
    predictors: Annotated[Sequence[Text], LISTED] = ("walltime",)
    policies: Annotated[Sequence[Text], LISTED] = (NONE,)
    seeds: Annotated[Sequence[Seed], LISTED] = (0,)


class CaseSchema(BaseModel):
    """One case by name."""

    model_config = STRICT
    name: Text
    trace: Text
    system: Text | None = None
    load: Load = 1.0
    window: Window = "whole"
    dispatcher: Text
    predictor: Text = "walltime"
    site_policy: Text = NONE
    seed: Seed = 0


class ExclusionSchema(BaseModel):
    """Cases that agree with all that is said here are left out."""

    model_config = STRICT
    because: Text
    trace: Text | None = None
    system: Text | None = None
    load: Load | None = None
    window: Text | None = None
    dispatcher: Text | None = None
    predictor: Text | None = None
    site_policy: Text | None = None
    seed: Seed | None = None

    def said(self) -> dict[str, Any]:
        """The axes that it names, with their values."""
        return {axis: value for axis in AXES if (value := getattr(self, axis)) is not None}

    @model_validator(mode="after")
    def _names_something(self) -> ExclusionSchema:
        if not self.said():
            raise ValueError("must name one axis at least")
        return self


class LimitSchema(BaseModel):
    """What a case may take."""

    model_config = STRICT
    minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_mib: Annotated[int, Field(ge=256)] | None = None


class TableSchema(BaseModel):
    """A table: the mean of a figure over all cases of a cell."""

    model_config = STRICT
    title: Text
    metric: Text
    rows: Axis = "policy"
    columns: Axis = "trace"


class PlotSchema(BaseModel):
    """A picture: the mean of a figure along an axis of numbers, a line for each value of another."""

    model_config = STRICT
    title: Text
    metric: Text
    across: Literal["load", "seed", "window"] = "load"
    lines: Axis = "policy"


class ReportSchema(BaseModel):
    """What the report shows beside the ranking."""

    model_config = STRICT
    baseline: Text | None = None
    metrics: Annotated[Sequence[Text], LISTED] = ("mean_wait_s", "bsld", "awf", "longest_wait_s")
    tables: Sequence[TableSchema] = ()
    plots: Sequence[PlotSchema] = ()


class StudySchema(BaseModel):
    """A whole file."""

    model_config = STRICT
    title: Text
    traces: Annotated[Mapping[Text, TraceSchema], Field(min_length=1)]
    dispatchers: Mapping[Text, Text] = Field(default_factory=dict)
    predictors: Mapping[Text, Text] = Field(default_factory=dict)
    grids: Sequence[GridSchema] = ()
    cases: Sequence[CaseSchema] = ()
    exclude: Sequence[ExclusionSchema] = ()
    limits: LimitSchema = LimitSchema()
    jobs: bool = False
    """Whether each job is written down, too."""
    report: ReportSchema = ReportSchema()
