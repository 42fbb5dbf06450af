"""Options that several commands share: single options, groups of options, and the completion of names in a shell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_type_hints

import typer
from typing_extensions import override

from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S

if TYPE_CHECKING:
    from cpsched_sim.traces.trace_record import TraceDialect
    from cpsched_sim.workloads.arrival_date_range import ArrivalDateRange
    from cpsched_sim.workloads.workload_loader import Workload

NAMES = {
    "cpsched.dispatchers": "advised cp-af cp-awf cp-bsld cp-bsld+ cp-off-af cp-off-awf cp-off-bsld cp-off-p2sf cp-p2sf "
    "cp-p2sf+ cph easy easy-sjbf ebf fcfs greedy hcp hcp1 hcp19 hcp2 list-boost list-f1 list-f2 list-f3 "
    "list-f4 list-laf list-ljf list-priority list-reg list-saf list-sjf list-spf list-unicep "
    "list-wfp3 ljf lookahead pcp pcp1 pcp19 pcp2 pcp20 prb sjf slurm",
    "cpsched.predictors": "last-two oracle profile quantile soft-walltime walltime",
    "cpsched.metrics": "af awf bsld makespan_s mean_slowdown mean_wait_s p2sf utilization",
}
"""The project's names by plug-in group, for shell completion. A test compares them with the registries.

Importing the dispatchers instead would take 0.7 CPU s per key press.
"""


def make_name_list_completer(group: str) -> Callable[[str], list[str]]:
    """Return a function that completes the last of several comma-separated names.

    The names include those of plug-ins.
    """

    def complete(incomplete: str) -> list[str]:
        from cpsched.plugin_discovery import discover_plugins

        head, comma, begun = incomplete.rpartition(",")
        names = {*NAMES[group].split(), *(plugin.name for plugin in discover_plugins(group))}
        return [f"{head}{comma}{name}" for name in sorted(names) if name.startswith(begun)]

    return complete


complete_dispatcher, complete_predictor, complete_metric = map(make_name_list_completer, NAMES)


F = TypeVar("F", bound=Callable[..., Any])


def expand_option_groups(command: F) -> F:
    """Add one option to a command per field of its dataclass parameters.

    The fields of subclasses come first.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def iterate_flat_parameters() -> Iterator[inspect.Parameter]:
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name not in groups:
                yield parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
                continue
            group = groups[parameter.name]
            types, known = get_type_hints(group, include_extras=True), {field.name: field for field in fields(group)}
            for name in (name for cls in group.__mro__ for name in vars(cls).get("__annotations__", ())):
                default = known[name].default if known[name].default is not MISSING else inspect.Parameter.empty
                kind = inspect.Parameter.KEYWORD_ONLY
                yield inspect.Parameter(name, kind, default=default, annotation=types[name])

    @functools.wraps(command)
    def call_with_option_groups(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    parameters = list(iterate_flat_parameters())
    call_with_option_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call_with_option_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return cast(F, call_with_option_groups)


MAX_CHARGE_MS = 86_400_000
_SEVERAL_NAMES_HELP = "Repeatable, or comma-separated names."


def _require_one_name(value: str) -> str:
    if "," in value:
        raise typer.BadParameter("must be one name; `cpsched compare` takes several")
    return value


Dispatcher = Annotated[
    str,
    typer.Option(
        "--dispatcher", "-d", help="A name (`cpsched dispatchers`), or package.module:Class.",
        autocompletion=complete_dispatcher, callback=_require_one_name,
    ),
]  # fmt: skip
Dispatchers = Annotated[
    list[str], typer.Option("--dispatcher", "-d", help=_SEVERAL_NAMES_HELP, autocompletion=complete_dispatcher)
]
Predictor = Annotated[
    str,
    typer.Option(
        "--predictor", "-p", help="A name (`cpsched predictors`), or package.module:Class.",
        autocompletion=complete_predictor, callback=_require_one_name,
    ),
]  # fmt: skip
Predictors = Annotated[
    list[str], typer.Option("--predictor", "-p", help=_SEVERAL_NAMES_HELP, autocompletion=complete_predictor)
]
SystemName = Annotated[
    str | None, typer.Option("--system", help="System name or file; default: the trace's system, else pool.")
]
PolicyPath = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="Site policy: shares, QOS, limits, priority weights."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a single JSON object on stdout, and nothing else.")]
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAndOutputOptions:
    """Options for running and printing."""

    as_json: AsJson = False
    decide_timeout: Annotated[
        float,
        typer.Option(
            "--decide-timeout", metavar="SECONDS", min=0,
            help="Seconds without progress (a decision, some predictions) until a plug-in is stopped; 0: no limit.",
        ),
    ] = STALL_TIMEOUT_S  # fmt: skip
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Hide progress on stderr, but show notes and errors.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRunOptions(RunAndOutputOptions):
    """Options for commands that run several processes."""

    jobs: Annotated[int, typer.Option("--processes", "-j", min=1, help="Number of parallel processes.")] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormatOptions:
    """Options for reading a trace."""

    lenient: Annotated[
        bool, typer.Option("--lenient", help="Skip and count invalid lines instead of failing at the first one.")
    ] = False
    format: Annotated[
        str | None,
        typer.Option("--format", help="Trace format; default: detected from the first line."),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAME=COLUMN,...",
            help="Accounting data: columns by name or number (Submit=submitted,User=3), or all column names in order.",
        ),
    ] = None
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="ZONE", help="Accounting data: time zone, such as Europe/Berlin."),
    ] = None
    arrival: Annotated[
        Literal["eligible", "submit"],
        typer.Option("--arrival", help="Accounting data: whether jobs arrive when eligible or when submitted."),
    ] = "eligible"

    def to_dialect(self) -> TraceDialect:
        """Return the options for reading an accounting file. Raise `InvalidValue`."""
        from cpsched_sim.traces.trace_record import TraceDialect

        return TraceDialect(self.columns or "", self.zone or "", self.arrival)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions(TraceFormatOptions):
    """A trace and its system."""

    trace: Annotated[
        Path,
        typer.Argument(
            help="Trace: SWF, `sacct -P` lines, PBS accounting log (file or folder), cpsched's own format (.gz "
            "too), PM100's or Kestrel's Parquet."
        ),
    ]
    system: SystemName = None

    def load(self, progress: Callable[[int], None]) -> Workload:
        """Load the workload. `progress` receives the number of jobs read so far."""
        from cpsched_sim.workloads.workload_loader import load

        return load(
            self.trace,
            self.system,
            lenient=self.lenient,
            progress=progress,
            format=self.format,
            dialect=self.to_dialect(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePartOptions(WorkloadOptions):
    """The selected part of a trace, and its system."""

    max_jobs: Annotated[int | None, typer.Option(min=1, help="Maximum number of jobs to replay.")] = None
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DATE",
            help="Start of the arrivals to replay: a date such as 2012-02-01, or +30d after the first job.",
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DATE", help="End of the arrivals to replay: a date, or +30d after the start."),
    ] = None

    def to_date_range(self) -> ArrivalDateRange:
        """Return the selected part of the trace."""
        from cpsched_sim.workloads.arrival_date_range import ALL_DATES, ArrivalDateRange

        return (
            ArrivalDateRange(self.from_ or "", self.to or "", self.zone or "") if self.from_ or self.to else ALL_DATES
        )

    def load(self, progress: Callable[[int], None]) -> Workload:
        """Load the selected part. `progress` receives the number of jobs read so far."""
        from cpsched_sim.workloads.workload_loader import load

        return load(
            self.trace, self.system, lenient=self.lenient, max_jobs=self.max_jobs, progress=progress,
            format=self.format, dialect=self.to_dialect(), between=self.to_date_range(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettingOptions:
    """Settings of dispatchers and predictors."""

    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the dispatcher or predictor, or overrun."),
    ] = None
    objective: Annotated[str | None, typer.Option(help="Objective of lookahead, as with --set objective=NAME.")] = None
    effort: Annotated[int | None, typer.Option(help="Deterministic search limit instead of seconds.")] = None
    seed: Annotated[int | None, typer.Option(help="Seed of randomized dispatchers.")] = None

    def parse_policy_settings(self) -> dict[str, str]:
        """Return the settings by name. An option of its own overrides NAME=VALUE of `--set`.

        Raise `InvalidValue`.
        """
        from cpsched.errors import require

        require(self.effort is None or self.effort > 0, "--effort", self.effort, "must be positive")
        found: dict[str, str] = {} if self.objective is None else {"objective": self.objective}
        for text in self.set_ or ():
            name, equals, value = text.partition("=")
            require(bool(name and equals), "--set", text, "must be NAME=VALUE")
            found[name] = value
        given = {"effort": self.effort, "seed": self.seed}
        return found | {name: str(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(PolicySettingOptions):
    """Options for a replay, apart from its workload, dispatcher and predictor."""

    limit: Annotated[
        float | None, typer.Option(help="Time limit of a decision in seconds, for dispatchers that search.")
    ] = None
    charge: Annotated[
        str,
        typer.Option("--charge", metavar="none|measured|MS", help="Simulated duration of a decision."),
    ] = "none"
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Also show this metric: a plug-in's name, or package.module:METRIC.",
            autocompletion=complete_metric,
        ),
    ] = None
    policy: PolicyPath = None

    @override
    def parse_policy_settings(self) -> dict[str, str]:
        from cpsched.errors import require

        limit, effort = self.limit, self.effort
        cannot = "cannot be combined: set only one of them"
        require(limit is None or effort is None, "--limit, --effort", (limit, effort), cannot)
        require(limit is None or limit > 0, "--limit", limit, "must be positive")
        found = PolicySettingOptions.parse_policy_settings(self)
        return found if limit is None else found | {"limit_s": str(limit)}

    def parse_scheduling_overhead(self) -> Any:
        """Return None, "measured" or milliseconds. Raise `InvalidValue`."""
        from cpsched.errors import InvalidValue

        if self.charge == "none":
            return None
        if self.charge == "measured":
            return self.charge
        try:
            if 0 <= (milliseconds := float(self.charge)) <= MAX_CHARGE_MS:
                return milliseconds
        except ValueError:
            pass
        raise InvalidValue(
            "--charge", self.charge, "must be none, measured, or a time in milliseconds of at most one day"
        )


def parse_names(option: str, texts: Iterable[str]) -> list[str]:
    """Split comma-separated names and remove duplicates.

    Raise `InvalidValue` if no name is given.
    """
    from cpsched.errors import require

    text = ",".join(texts)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    require(bool(names), option, text, "must contain at least one name")
    return names
