"""What there is by name: dispatchers and predictors, those of the project and those of installed plug-ins.

Three kinds of words name a thing, alike on the command line, in `bridge.yaml` and in `simulate()`:

- a name of the project (`easy`), declared in a tuple `LISTED` by the module that holds the thing;
- a name that an installed package offers under an entry point (group `cpsched.dispatchers`, ...);
- `package.module:Class`, whatever it is that Python can import.

The modules of the project are found by walking through a package: whoever adds a file adds a name, and edits no list.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, NamedTuple, TypeVar, cast

from cpsched import plugin_discovery
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import RAISED, CpschedError, InvalidValue, PluginLoadError, UnknownName, describe_exception
from cpsched.plugin_discovery import Plugin
from cpsched.predictors.base import Predictor
from cpsched.registration import FileReader, Registration, first_sentence
from cpsched.traceback_origin import plugin_source_location

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plug-in that cannot be used, and the one line that says why."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Registry(Generic[T]):
    """All things of one kind.

    `packages` are walked through for modules that declare `LISTED`; `group` is where plug-ins offer theirs. `base` is
    the class that a thing must derive from. `more` are listings of a program's own.
    """

    kind: str
    group: str
    base: type
    packages: tuple[str, ...]
    more: tuple[Registration, ...] = ()

    def with_(self, *more: Registration) -> Registry[T]:
        """The same with `more` things in it."""
        return replace(self, more=(*self.more, *more))

    def builtins(self) -> Iterator[Registration]:
        """What comes with the project. A module is imported when the ones before it have been looked at."""
        for package in self.packages:
            for module in iter_modules(import_module(package).__path__):
                if not module.ispkg:
                    yield from getattr(import_module(f"{package}.{module.name}"), "LISTED", ())
        yield from self.more

    def offered(self) -> tuple[Plugin, ...]:
        """What installed packages offer, not yet loaded."""
        return plugin_discovery.discover_plugins(self.group)

    def names(self) -> list[str]:
        """Every name, of the project and of plug-ins, sorted."""
        return sorted({*(listing.name for listing in self.builtins()), *(plugin.name for plugin in self.offered())})

    def all(self) -> Iterator[Registration | BrokenPlugin]:
        """Everything, plug-ins loaded: a broken one is told of and breaks nothing."""
        own = list(self.builtins())
        yield from own
        for plugin in self.offered():
            try:
                listing = self._of_plugin(plugin, {listing.name for listing in own})
                listing.parameters()
                yield listing
            except CpschedError as error:
                yield BrokenPlugin(plugin.name, str(error))
            except Exception as error:  # annotations that do not resolve, a signature that cannot be read
                yield BrokenPlugin(plugin.name, str(self._unloadable(plugin, f"{type(error).__name__}: {error}")))

    def find(self, words: str) -> Registration:
        """What `words` name. Raises `UnknownName` listing the known names, `PluginLoadError` for what is broken."""
        for listing in self.more:
            if listing.name == words:
                return listing
        if ":" in words:
            return self.registration_of(plugin_discovery.load_attribute(self.kind, words), words)
        for listing in self.builtins():
            if listing.name == words:
                return listing
        for plugin in self.offered():
            if plugin.name == words:
                return self._of_plugin(plugin, ())
        raise UnknownName(self.kind, words, self.names())

    def registration_of(self, thing: Any, words: str = "", origin: str = "") -> Registration:
        """The listing of a class, of a function that makes an instance, or of an instance.

        Raises `InvalidValue` for what is none of these.
        """
        name = words or import_path_of(thing)
        if isinstance(thing, Registration):
            return replace(thing, name=name, origin=origin)
        if isinstance(thing, self.base):
            return Registration(
                name, first_sentence(type(thing)), origin or import_path_of(thing), lambda: thing, origin=origin
            )
        if inspect.isclass(thing) and not issubclass(thing, self.base):
            raise self._refused(name, f"must derive from {self._base()}")
        if not callable(thing):
            raise self._refused(
                words or repr(thing), f"must be a {self.kind}: a name, package.module:Class, a class or an instance"
            )
        return Registration(name, first_sentence(thing), origin or import_path_of(thing), thing, origin=origin)

    def build(self, words: str, settings: Mapping[str, str] | None = None, read: FileReader | None = None) -> T:
        """An instance of what `words` name; see `Registration.build`. `PluginLoadError` tells of a constructor that
        raised.
        """
        listing = self.find(words)
        try:
            made = listing.build(settings, read)
        except CpschedError:
            raise
        except RAISED as error:
            raise PluginLoadError(
                self.kind, words, f"cannot be made: {describe_exception(error)}", plugin_source_location(error)
            ) from error
        return self.checked(made, words)

    def checked(self, thing: object, words: str) -> T:
        """`thing`, if it is what it should be; raises `InvalidValue`."""
        if not isinstance(thing, self.base):
            made = f"made a {type(thing).__name__}, which does not derive from {self._base()}"
            raise self._refused(words, made)
        return cast(T, thing)

    def _of_plugin(self, plugin: Plugin, taken: Collection[str]) -> Registration:
        if plugin.name in taken:
            raise self._unloadable(plugin, "the project has one of that name, which stays")
        rivals = [other.origin for other in self.offered() if other.name == plugin.name and other != plugin]
        if rivals:
            raise self._unloadable(plugin, f"{' and '.join(rivals)} offers one of that name, too")
        try:
            return self.registration_of(
                plugin_discovery.load_attribute(self.kind, plugin.words), plugin.name, plugin.origin
            )
        except (PluginLoadError, InvalidValue) as error:
            raise self._unloadable(
                plugin, error.reason if isinstance(error, PluginLoadError) else error.rule
            ) from error

    def _base(self) -> str:
        return f"{self.base.__name__} ({self.base.__module__})"

    def _refused(self, words: str, rule: str) -> InvalidValue:
        return InvalidValue(self.kind, words, rule)

    def _unloadable(self, plugin: Plugin, why: str) -> PluginLoadError:
        return PluginLoadError(self.kind, plugin.name, f"plug-in {plugin.words} of {plugin.origin}: {why}")


def import_path_of(thing: Any) -> str:
    """`package.module:Class` of a class, a function or an instance."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


class PolicyRegistries(NamedTuple):
    """What the two names of a policy are looked up in."""

    dispatchers: Registry[Dispatcher]
    predictors: Registry[Predictor]


DISPATCHERS: Registry[Dispatcher] = Registry(
    "dispatcher",
    "cpsched.dispatchers",
    Dispatcher,
    (
        "cpsched.dispatchers",
        "cpsched.dispatchers.lookahead",
        "cpsched.dispatchers.slurm",
        "cpsched.dispatchers.cp.papers",
    ),
)
PREDICTORS: Registry[Predictor] = Registry("predictor", "cpsched.predictors", Predictor, ("cpsched.predictors",))
CORE = PolicyRegistries(DISPATCHERS, PREDICTORS)


def dispatcher(words: str, settings: Mapping[str, str] | None = None) -> Dispatcher:
    """A dispatcher by name or `package.module:Class`."""
    return DISPATCHERS.build(words, settings)


def predictor(words: str, settings: Mapping[str, str] | None = None) -> Predictor:
    """A predictor by name or `package.module:Class`."""
    return PREDICTORS.build(words, settings)
