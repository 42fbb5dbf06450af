"""A policy in words: which dispatcher and which predictor, with which settings, and what overrunning jobs do.

One value for the command line, `bridge.yaml`, the journal and `simulate()`. It is made of texts, so that it can be
written down, sent to another process and read again:

    list-reg / profile option=greedy remember=50 overrun=double
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import UnknownName, require
from cpsched.model.overrun import Overrun
from cpsched.policy import Policy
from cpsched.registration import FileReader, Parameter, Registration
from cpsched.registry import CORE, PolicyRegistries

OVERRUN = "overrun"
"""The setting of the policy itself."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy in words. The journal writes these five fields down, under these names.

    `dispatcher` and `predictor` are names or `package.module:Class`; settings are texts by the name of a parameter.
    `overrun` is None where nobody said it: the dispatcher's own rule is then in force. What is said is in force.
    """

    dispatcher: str = "easy"
    predictor: str = "walltime"
    dispatcher_settings: Mapping[str, str] = field(default_factory=dict)
    predictor_settings: Mapping[str, str] = field(default_factory=dict)
    overrun: str | None = None

    @classmethod
    def of(
        cls,
        dispatcher: str = "easy",
        predictor: str = "walltime",
        settings: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        known: PolicyRegistries = CORE,
    ) -> PolicySpec:
        """The spec of these two; each setting goes to whoever knows its name: dispatcher, predictor or the policy.

        A name that dispatcher and predictor both know goes to both; `dispatcher.NAME` and `predictor.NAME` mean one.
        `options` are settings of dispatchers that search (limit_s, effort, seed): only the dispatcher gets them.
        Raises `UnknownName` for a setting that nobody knows, `InvalidValue` for an option that the dispatcher has not.
        """
        names = {
            "dispatcher": setting_names(known.dispatchers.find(dispatcher)),
            "predictor": setting_names(known.predictors.find(predictor)),
        }
        given: dict[str, dict[str, str]] = {owner: {} for owner in names}
        overrun: str | None = None
        for name, value in (settings or {}).items():
            if name == OVERRUN:
                overrun = None if value is None else str(value)
                continue
            owner, dot, rest = name.partition(".")
            takers, bare = ((owner,), rest) if dot and owner in names else (tuple(names), name)
            takers = tuple(taker for taker in takers if bare in names[taker])
            if not takers:
                everything = {*names["dispatcher"], *names["predictor"], OVERRUN}
                raise UnknownName(f"parameter of {dispatcher}, {predictor} or the policy", name, everything)
            for taker in takers:
                given[taker][bare] = str(value)
        for name, value in (options or {}).items():
            require(name in names["dispatcher"], name, value, f"{dispatcher} has no such parameter: it does not search")
            given["dispatcher"][name] = str(value)
        return cls(dispatcher, predictor, given["dispatcher"], given["predictor"], overrun)

    @classmethod
    def parse(cls, text: str, known: PolicyRegistries = CORE) -> PolicySpec:
        """The spec that `text` spells: `dispatcher [/ predictor] [NAME=VALUE ...]`, quoted as in a shell.

        Raises `InvalidValue` for what is not of this form, `UnknownName` for a setting that nobody knows.
        """
        names: list[str] = []
        settings: dict[str, str] = {}
        for word in shlex.split(text):
            name, equals, value = word.partition("=")
            if equals:
                settings[name] = value
            else:
                names += [part for part in word.split("/") if part]
        require(1 <= len(names) <= 2, "policy", text, "must be: dispatcher [/ predictor] [NAME=VALUE ...]")
        dispatcher, predictor = (*names, cls().predictor)[:2]
        return cls.of(dispatcher, predictor, settings, known=known)

    def __str__(self) -> str:
        """What `parse` reads: settings that both know are told apart, overrun is left out where nobody said it."""
        settings = (shlex.quote(f"{name}={value}") for name, value in self.settings().items())
        return " ".join((f"{self.dispatcher} / {self.predictor}", *settings))

    def settings(self) -> dict[str, str]:
        """All settings by name, overrun among them where somebody said it."""
        shared = self.dispatcher_settings.keys() & self.predictor_settings.keys()
        owners = (("dispatcher", self.dispatcher_settings), ("predictor", self.predictor_settings))
        found = {
            f"{owner}.{name}" if name in shared else name: value
            for owner, settings in owners
            for name, value in settings.items()
        }
        return found if self.overrun is None else {**found, OVERRUN: self.overrun}

    def build(self, read: FileReader | None = None, known: PolicyRegistries = CORE) -> Policy:
        """The policy, new. `read` opens files that settings name; `known` may hold more than the core's names.

        Raises `UnknownName`, `PluginLoadError`, `InvalidValue`.
        """
        dispatcher = known.dispatchers.build(self.dispatcher, self.dispatcher_settings, read)
        predictor = known.predictors.build(self.predictor, self.predictor_settings, read)
        return Policy(predictor, dispatcher, self.overrun_with(dispatcher))

    def overrun_with(self, dispatcher: Dispatcher) -> Overrun:
        """The overrun rule in force: what was said, else the dispatcher's own. Raises `InvalidValue`."""
        return dispatcher.overrun if self.overrun is None else overrun_of(self.overrun)


def setting_names(listing: Registration) -> set[str]:
    """Names of the settings that this listing knows."""
    return {parameter.name for parameter in listing.parameters()}


def overrun_of(text: str) -> Overrun:
    """The overrun rule of that name; raises `InvalidValue`."""
    return cast(Overrun, Parameter(OVERRUN, Overrun, None).parse(text))
