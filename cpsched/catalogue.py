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

from cpsched import plugins
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import RAISED, CpschedError, InvalidValue, UnknownName, Unloadable, what_happened
from cpsched.listing import Listing, ReadFile, sentence_of
from cpsched.plugins import Plugin
from cpsched.predictors.base import Predictor
from cpsched.whereabouts import place_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broken:
    """A plug-in that cannot be used, and the one line that says why."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Catalogue(Generic[T]):
    """All things of one kind.

    `packages` are walked through for modules that declare `LISTED`; `group` is where plug-ins offer theirs. `base` is
    the class that a thing must derive from. `more` are listings of a program's own.
    """

    kind: str
    group: str
    base: type
    packages: tuple[str, ...]
    more: tuple[Listing, ...] = ()

    def with_(self, *more: Listing) -> Catalogue[T]:
        """The same with `more` things in it."""
        return replace(self, more=(*self.more, *more))

    def own(self) -> Iterator[Listing]:
        """What comes with the project. A module is imported when the ones before it have been looked at."""
        for package in self.packages:
            for module in iter_modules(import_module(package).__path__):
                if not module.ispkg:
                    yield from getattr(import_module(f"{package}.{module.name}"), "LISTED", ())
        yield from self.more

    def offered(self) -> tuple[Plugin, ...]:
        """What installed packages offer, not yet loaded."""
        return plugins.plugins(self.group)

    def names(self) -> list[str]:
        """Every name, of the project and of plug-ins, sorted."""
        return sorted({*(listing.name for listing in self.own()), *(plugin.name for plugin in self.offered())})

    def all(self) -> Iterator[Listing | Broken]:
        """Everything, plug-ins loaded: a broken one is told of and breaks nothing."""
        own = list(self.own())
        yield from own
        for plugin in self.offered():
            try:
                listing = self._of_plugin(plugin, {listing.name for listing in own})
                listing.parameters()
                yield listing
            except CpschedError as error:
                yield Broken(plugin.name, str(error))
            except Exception as error:  # annotations that do not resolve, a signature that cannot be read
                yield Broken(plugin.name, str(self._unloadable(plugin, f"{type(error).__name__}: {error}")))

    def find(self, words: str) -> Listing:
        """What `words` name. Raises `UnknownName` listing the known names, `Unloadable` for what is broken."""
        for listing in self.more:
            if listing.name == words:
                return listing
        if ":" in words:
            return self.listing_of(plugins.loaded(self.kind, words), words)
        for listing in self.own():
            if listing.name == words:
                return listing
        for plugin in self.offered():
            if plugin.name == words:
                return self._of_plugin(plugin, ())
        raise UnknownName(self.kind, words, self.names())

    def listing_of(self, thing: Any, words: str = "", origin: str = "") -> Listing:
        """The listing of a class, of a function that makes an instance, or of an instance.

        Raises `InvalidValue` for what is none of these.
        """
        name = words or words_of(thing)
        if isinstance(thing, Listing):
            return replace(thing, name=name, origin=origin)
        if isinstance(thing, self.base):
            return Listing(name, sentence_of(type(thing)), origin or words_of(thing), lambda: thing, origin=origin)
        if inspect.isclass(thing) and not issubclass(thing, self.base):
            raise self._refused(name, f"must derive from {self._base()}")
        if not callable(thing):
            raise self._refused(
                words or repr(thing), f"must be a {self.kind}: a name, package.module:Class, a class or an instance"
            )
        return Listing(name, sentence_of(thing), origin or words_of(thing), thing, origin=origin)

    def build(self, words: str, settings: Mapping[str, str] | None = None, read: ReadFile | None = None) -> T:
        """An instance of what `words` name; see `Listing.build`. `Unloadable` tells of a constructor that raised."""
        listing = self.find(words)
        try:
            made = listing.build(settings, read)
        except CpschedError:
            raise
        except RAISED as error:
            raise Unloadable(self.kind, words, f"cannot be made: {what_happened(error)}", place_of(error)) from error
        return self.checked(made, words)

    def checked(self, thing: object, words: str) -> T:
        """`thing`, if it is what it should be; raises `InvalidValue`."""
        if not isinstance(thing, self.base):
            made = f"made a {type(thing).__name__}, which does not derive from {self._base()}"
            raise self._refused(words, made)
        return cast(T, thing)

    def _of_plugin(self, plugin: Plugin, taken: Collection[str]) -> Listing:
        if plugin.name in taken:
            raise self._unloadable(plugin, "the project has one of that name, which stays")
        rivals = [other.origin for other in self.offered() if other.name == plugin.name and other != plugin]
        if rivals:
            raise self._unloadable(plugin, f"{' and '.join(rivals)} offers one of that name, too")
        try:
            return self.listing_of(plugins.loaded(self.kind, plugin.words), plugin.name, plugin.origin)
        except (Unloadable, InvalidValue) as error:
            raise self._unloadable(plugin, error.reason if isinstance(error, Unloadable) else error.rule) from error

    def _base(self) -> str:
        return f"{self.base.__name__} ({self.base.__module__})"

    def _refused(self, words: str, rule: str) -> InvalidValue:
        return InvalidValue(self.kind, words, rule)

    def _unloadable(self, plugin: Plugin, why: str) -> Unloadable:
        return Unloadable(self.kind, plugin.name, f"plug-in {plugin.words} of {plugin.origin}: {why}")


def words_of(thing: Any) -> str:
    """`package.module:Class` of a class, a function or an instance."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


class Catalogues(NamedTuple):
    """What the two names of a policy are looked up in."""

    dispatchers: Catalogue[Dispatcher]
    predictors: Catalogue[Predictor]


DISPATCHERS: Catalogue[Dispatcher] = Catalogue(
    "dispatcher",
    "cpsched.dispatchers",
    Dispatcher,
    (
        "cpsched.dispatchers",
        "cpsched.dispatchers.lookahead",
        "cpsched.dispatchers.slurm",
        "cpsched.dispatchers.cp.recipes",
    ),
)
PREDICTORS: Catalogue[Predictor] = Catalogue("predictor", "cpsched.predictors", Predictor, ("cpsched.predictors",))
CORE = Catalogues(DISPATCHERS, PREDICTORS)


def dispatcher(words: str, settings: Mapping[str, str] | None = None) -> Dispatcher:
    """A dispatcher by name or `package.module:Class`."""
    return DISPATCHERS.build(words, settings)


def predictor(words: str, settings: Mapping[str, str] | None = None) -> Predictor:
    """A predictor by name or `package.module:Class`."""
    return PREDICTORS.build(words, settings)
