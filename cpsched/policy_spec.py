"""Define a policy as text: dispatcher, predictor, settings and overrun rule.

The command line, `bridge.yaml`, the journal and `simulate()` share this type. Example:

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
"""Name of the policy's own setting."""
SEARCH_SETTINGS = ("limit_s", "effort", "seed")
"""The settings of dispatchers that search."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy as text. The journal stores these five fields under the same names.

    `dispatcher` and `predictor` are names or `package.module:Class`. Settings map parameter names to text.
    `overrun=None` means the dispatcher's own rule.
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
        known: PolicyRegistries = CORE,
    ) -> PolicySpec:
        """Return the spec, with each setting assigned to a part of the policy by its name.

        If dispatcher and predictor both have the setting, both are set; `dispatcher.NAME` or `predictor.NAME` selects
        one of them. Raise `UnknownName` for an unknown setting, and `InvalidValue` for a search setting of a dispatcher
        that does not search.
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
                lacks = f"is not a parameter of {dispatcher}, which does not search"
                require(name not in SEARCH_SETTINGS, name, value, lacks)
                everything = {*names["dispatcher"], *names["predictor"], OVERRUN}
                raise UnknownName(f"parameter of {dispatcher}, {predictor} or the policy", name, everything)
            for taker in takers:
                given[taker][bare] = str(value)
        return cls(dispatcher, predictor, given["dispatcher"], given["predictor"], overrun)

    @classmethod
    def parse(cls, text: str, known: PolicyRegistries = CORE) -> PolicySpec:
        """Parse `dispatcher [/ predictor] [NAME=VALUE ...]`, quoted as in a shell.

        Raise `InvalidValue` for any other form, and `UnknownName` for an unknown setting.
        """
        names: list[str] = []
        settings: dict[str, str] = {}
        for word in shlex.split(text):
            name, equals, value = word.partition("=")
            if equals:
                settings[name] = value
            else:
                names += [part for part in word.split("/") if part]
        require(1 <= len(names) <= 2, "policy", text, "must have the form dispatcher [/ predictor] [NAME=VALUE ...]")
        dispatcher, predictor = (*names, cls().predictor)[:2]
        return cls.of(dispatcher, predictor, settings, known=known)

    def __str__(self) -> str:
        """Return text that `parse` accepts.

        Settings that both parts have get a prefix. `overrun` is omitted if it is None.
        """
        settings = (shlex.quote(f"{name}={value}") for name, value in self.settings().items())
        return " ".join((f"{self.dispatcher} / {self.predictor}", *settings))

    def settings(self) -> dict[str, str]:
        """Return all settings by name, including `overrun` unless it is None."""
        shared = self.dispatcher_settings.keys() & self.predictor_settings.keys()
        owners = (("dispatcher", self.dispatcher_settings), ("predictor", self.predictor_settings))
        found = {
            f"{owner}.{name}" if name in shared else name: value
            for owner, settings in owners
            for name, value in settings.items()
        }
        return found if self.overrun is None else {**found, OVERRUN: self.overrun}

    def build(self, read: FileReader | None = None, known: PolicyRegistries = CORE) -> Policy:
        """Build a policy.

        `read` reads the files that settings refer to. `known` can contain more names than the core. Raise
        `UnknownName`, `PluginLoadError` or `InvalidValue`.
        """
        dispatcher = known.dispatchers.build(self.dispatcher, self.dispatcher_settings, read)
        predictor = known.predictors.build(self.predictor, self.predictor_settings, read)
        return Policy(predictor, dispatcher, self.effective_overrun(dispatcher))

    def effective_overrun(self, dispatcher: Dispatcher) -> Overrun:
        """Return the effective overrun rule: `overrun`, or the dispatcher's rule if None.

        Raise `InvalidValue` for an unknown rule.
        """
        return dispatcher.overrun if self.overrun is None else parse_overrun(self.overrun)


def setting_names(listing: Registration) -> set[str]:
    """Return a registration's setting names."""
    return {parameter.name for parameter in listing.parameters()}


def parse_overrun(text: str) -> Overrun:
    """Return the overrun rule with this name. Raise `InvalidValue` if it is unknown."""
    return cast(Overrun, Parameter(OVERRUN, Overrun, None).parse(text))
