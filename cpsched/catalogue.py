"""What there is: every dispatcher and predictor by name, with one sentence, its parameters and its source.

An entry names its factory as "module:callable" and loads it when it is first needed, so that listing names or
running a list scheduler does not pay for a solver's import.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import InvalidValue, UnknownName
from cpsched.predictors.base import Predictor


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a factory: what `--set NAME=VALUE` may give."""

    name: str
    type: Any
    default: object

    def parse(self, text: str) -> object:
        """The value that `text` spells; raises `InvalidValue` naming the rule."""
        optional = type(None) in typing.get_args(self.type)
        kinds = [kind for kind in _members(self.type) if kind is not type(None)]
        if optional and text.lower() in ("none", ""):
            return None
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                if text in typing.get_args(kind):
                    return text
                raise InvalidValue(self.name, text, f"must be one of {', '.join(map(str, typing.get_args(kind)))}")
            if kind is bool and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if kind in (int, float, str):
                try:
                    return kind(text)
                except ValueError:
                    continue
        raise InvalidValue(self.name, text, f"must be {' or '.join(getattr(k, '__name__', str(k)) for k in kinds)}")


def _members(kind: Any) -> tuple[Any, ...]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return typing.get_args(kind)
    return (kind,)


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of the catalogue; `fixed` are the parameters that make this variant what it is."""

    name: str
    summary: str
    source: str
    factory: str
    fixed: Mapping[str, object] = field(default_factory=dict)

    def load(self) -> Callable[..., object]:
        """The factory itself."""
        module, _, attribute = self.factory.partition(":")
        return cast(Callable[..., object], getattr(importlib.import_module(module), attribute))

    def parameters(self) -> tuple[Parameter, ...]:
        """What may be set, with defaults."""
        factory = self.load()
        hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
        signature = inspect.signature(factory)
        return tuple(
            Parameter(p.name, hints.get(p.name, str), self.fixed.get(p.name, p.default))
            for p in signature.parameters.values()
            if not p.name.startswith("_")
        )

    def build(self, settings: Mapping[str, str] | None = None) -> object:
        """An instance; `settings` are texts as the command line gives them. Raises `UnknownName`, `InvalidValue`."""
        known = {parameter.name: parameter for parameter in self.parameters()}
        values: dict[str, object] = dict(self.fixed)
        for name, text in (settings or {}).items():
            if name not in known:
                raise UnknownName(f"parameter of {self.name}", name, known)
            values[name] = known[name].parse(text)
        return self.load()(**values)


LISTS = "cpsched.dispatchers.lists:ListDispatcher"
EASY = "cpsched.dispatchers.easy:EasyDispatcher"
DEBS24 = "debs24 Algorithm 1"
MOD17 = "mod17 section 4"

DISPATCHERS: tuple[Entry, ...] = (
    Entry("fcfs", "First come, first served: nobody overtakes.", DEBS24, LISTS, {"option": "strict"}),
    Entry("greedy", "First come, first served, but whatever fits starts.", DEBS24, LISTS, {"option": "greedy"}),
    Entry("easy", "First come, first served; others may not delay the first that waits.", "Lifka 1995", EASY),
    Entry(
        "easy-sjbf",
        "EASY whose other jobs are tried shortest estimate first.",
        "Tsafrir et al. 2007",
        EASY,
        {"backfill": "shortest"},
    ),
    Entry("list-reg", "By arrival; every job that waits reserves its earliest slot.", DEBS24, LISTS, {"order": "reg"}),
    Entry("list-sjf", "Shortest estimate first, with reservations.", DEBS24, LISTS, {"order": "sjf"}),
    Entry("list-ljf", "Longest estimate first, with reservations.", DEBS24, LISTS, {"order": "ljf"}),
    Entry("list-saf", "Smallest area first, with reservations.", DEBS24, LISTS, {"order": "saf"}),
    Entry("list-laf", "Largest area first, with reservations.", DEBS24, LISTS, {"order": "laf"}),
    Entry("list-spf", "Smallest processors times squared estimate first.", DEBS24, LISTS, {"order": "spf"}),
    Entry(
        "sjf",
        "Shortest estimate first; the first that does not fit stops the round.",
        MOD17,
        LISTS,
        {"order": "shortest", "option": "strict"},
    ),
    Entry(
        "ljf",
        "Longest estimate first; the first that does not fit stops the round.",
        MOD17,
        LISTS,
        {"order": "longest", "option": "strict"},
    ),
    Entry("ebf", "EASY backfilling as in mod17: a missed reservation moves, nothing is killed.", MOD17, EASY),
    Entry(
        "prb",
        "Closest to exceeding its queue's expected wait first, on the fullest nodes.",
        MOD17,
        "cpsched.dispatchers.priority:PriorityDispatcher",
    ),
    Entry(
        "pcp20",
        "Plans start times and places of all that could start now, for least slowdown, in one constraint model.",
        "pcp20; search control of cp19",
        "cpsched.dispatchers.cp.pcp20:Pcp20",
    ),
)
PREDICTORS: tuple[Entry, ...] = (
    Entry(
        "walltime",
        "A job runs as long as its user allows it to.",
        "-W in cp19, pcp20, mod17",
        "cpsched.predictors.walltime:WalltimePredictor",
    ),
    Entry(
        "last-two",
        "Mean run time of the user's last two ended jobs, capped by the walltime.",
        "-L2: Tsafrir et al. 2007; pcp20 section 4",
        "cpsched.predictors.last_two:LastTwoPredictor",
    ),
    Entry(
        "profile",
        "Run time of the user's last ended job that resembles this one, by six rules from strict to loose.",
        "-D: mod17 section 3; on-line as in cp19",
        "cpsched.predictors.profile:ProfilePredictor",
    ),
)


def find(entries: tuple[Entry, ...], kind: str, name: str) -> Entry:
    """The entry of that name; raises `UnknownName` listing the known ones."""
    for entry in entries:
        if entry.name == name:
            return entry
    raise UnknownName(kind, name, (entry.name for entry in entries))


def dispatcher(name: str, settings: Mapping[str, str] | None = None) -> Dispatcher:
    """A dispatcher by name."""
    return cast(Dispatcher, find(DISPATCHERS, "dispatcher", name).build(settings))


def predictor(name: str, settings: Mapping[str, str] | None = None) -> Predictor:
    """A predictor by name."""
    return cast(Predictor, find(PREDICTORS, "predictor", name).build(settings))
