"""Options that several commands take, and what their texts mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cpsched_sim.shell import say

if TYPE_CHECKING:
    from cpsched_sim.traces.dialect import Dialect
    from cpsched_sim.workloads.dates import Between


def _ignored(name: str, reason: str) -> Callable[[str | None], None]:
    """Return a callback that warns where a retired option is given."""

    def warn(value: str | None) -> None:
        if value is not None:
            say("warning", f"{name} is ignored: {reason}")

    return warn


MOST_CHARGE_MS = 86_400_000
Trace = Annotated[
    Path,
    typer.Argument(
        help="A trace: SWF, `sacct -P` lines, PBS's accounting (a file or its folder), cpsched's own format (.gz too), "
        "PM100's or Kestrel's Parquet."
    ),
]
SystemName = Annotated[
    str | None, typer.Option("--system", help="A system by name or file; default: what the trace names, else pool.")
]
Dispatcher = Annotated[
    str, typer.Option("--dispatcher", "-d", help="A name (`cpsched dispatchers`), or package.module:Class.")
]
Predictor = Annotated[
    str, typer.Option("--predictor", "-p", help="A name (`cpsched predictors`), or package.module:Class.")
]
Dispatchers = Annotated[
    list[str], typer.Option("--dispatcher", "-d", help="As often as you like, or names separated by commas.")
]
Predictors = Annotated[
    list[str], typer.Option("--predictor", "-p", help="As often as you like, or names separated by commas.")
]
Processes = Annotated[int, typer.Option("--processes", "-j", min=1, help="How many processes at once.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the dispatcher, the predictor, or overrun."),
]
MaxJobs = Annotated[int | None, typer.Option(min=1, help="Replay only this many jobs, from the first.")]
FromDate = Annotated[
    str | None,
    typer.Option("--from", metavar="DATE", help="Only jobs from then on: 2012-02-01, or +30d from the first."),
]
ToDate = Annotated[
    str | None, typer.Option("--to", metavar="DATE", help="Only jobs before then: a date, or +30d from the begin.")
]
Limit = Annotated[float | None, typer.Option(help="Seconds that a decision may take (dispatchers that search).")]
Effort = Annotated[int | None, typer.Option(help="Deterministic limit instead of seconds.")]
Objective = Annotated[
    str | None, typer.Option(help="Short for --set objective=NAME: what lookahead plans for (see its page).")
]
Seed = Annotated[int | None, typer.Option(help="Seed of dispatchers that draw.")]
ChargeText = Annotated[
    str, typer.Option("--charge", metavar="none|measured|MS", help="What a decision costs on the simulated clock.")
]
RetiredLane = Annotated[
    str | None,
    typer.Option("--lane", hidden=True, callback=_ignored("--lane", "long traces run compiled where that is possible")),
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip and count bad lines instead of stopping at the first.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="The trace's format by name; default: what its first line looks like.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME=COLUMN,...",
        help="Accounting data: which column is what, Submit=submitted,User=3; or the names of all columns in order.",
    ),
]
Zone = Annotated[
    str | None,
    typer.Option("--zone", metavar="ZONE", help="Accounting data: the zone of its times, such as Europe/Berlin."),
]
ArrivalName = Annotated[
    Literal["eligible", "submit"],
    typer.Option("--arrival", help="Accounting data: jobs arrive when they became eligible, or when submitted."),
]
MetricNames = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Show this metric, too: a plug-in's name, or package.module:METRIC."),
]
PolicyPath = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="A site's policy: shares, QOS, limits, weights of priority."),
]
DecideTimeout = Annotated[
    float,
    typer.Option(
        "--decide-timeout", metavar="SECONDS", min=0,
        help="How long a plug-in may go on without progress (a decision, some predictions); 0: for ever.",
    ),
]  # fmt: skip
OutDir = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the results there.")]


def parse_settings(texts: Iterable[str] | None, objective: str | None = None) -> dict[str, str]:
    """NAME=VALUE texts as a mapping, and the objective where one is given; raises `InvalidValue`."""
    from cpsched.errors import require

    found: dict[str, str] = {} if objective is None else {"objective": objective}
    for text in texts or ():
        name, equals, value = text.partition("=")
        require(bool(name and equals), "--set", text, "must be NAME=VALUE")
        found[name] = value
    return found


def parse_charge(text: str) -> Any:
    """None, "measured" or milliseconds; raises `InvalidValue`."""
    from cpsched.errors import InvalidValue

    if text == "none":
        return None
    if text == "measured":
        return text
    try:
        if 0 <= (milliseconds := float(text)) <= MOST_CHARGE_MS:
            return milliseconds
    except ValueError:
        pass
    raise InvalidValue("--charge", text, "must be none, measured, or milliseconds, from 0 to those of a day")


def dialect_of(columns: str | None, zone: str | None, arrival: Literal["eligible", "submit"]) -> Dialect:
    """What is said of an accounting file; raises `InvalidValue`."""
    from cpsched_sim.traces.dialect import Dialect

    return Dialect(columns or "", zone or "", arrival)


def between_of(from_: str | None, to: str | None, zone: str | None) -> Between:
    """The part of a trace that is asked for."""
    from cpsched_sim.workloads.dates import ALWAYS, Between

    return Between(from_ or "", to or "", zone or "") if from_ or to else ALWAYS


def search_options(limit: float | None, effort: int | None, seed: int | None) -> dict[str, str]:
    """The settings that only dispatchers with a search understand."""
    from cpsched.errors import require

    require(limit is None or effort is None, "--limit, --effort", (limit, effort), "only one of them")
    require(limit is None or limit > 0, "--limit", limit, "must be positive")
    require(effort is None or effort > 0, "--effort", effort, "must be positive")
    given = {"limit_s": limit, "effort": effort, "seed": seed}
    return {name: str(value) for name, value in given.items() if value is not None}


def names_of(option: str, texts: Iterable[str]) -> list[str]:
    """Names separated by commas, each once. Raises `InvalidValue` where there is none."""
    from cpsched.errors import require

    text = ",".join(texts)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    require(bool(names), option, text, "must name one at least")
    return names
