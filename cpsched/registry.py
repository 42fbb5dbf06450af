"""Look up registered objects, such as dispatchers and predictors, by name.

The command line, `bridge.yaml` and `simulate()` accept the same three forms:

- the name of a built-in (`easy`), declared in a tuple `REGISTRATIONS` by the module that defines it;
- a name that an installed package declares as an entry point, for example in the group `cpsched.dispatchers`;
- `package.module:Class`, for any class that Python can import.

Built-ins are found by iterating over the modules in a package, so a new file needs no entry elsewhere.
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
from cpsched.errors import (
    CAUGHT_EXCEPTIONS,
    CpschedError,
    InvalidValue,
    PluginLoadError,
    UnknownName,
    describe_exception,
    plugin_source_location,
)
from cpsched.plugin_discovery import PluginEntryPoint
from cpsched.predictors.base import Predictor
from cpsched.registration import FileReader, Registration, docstring_summary

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokenPlugin:
    """A plug-in that cannot be used, with a one-line reason."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Registry(Generic[T]):
    """All registrations of one kind.

    Built-ins are in the `REGISTRATIONS` tuples of `packages` and their modules. `group` is the entry-point group for
    plug-ins. `base` is the required base class. `more` contains registrations that the calling program adds.
    """

    kind: str
    group: str
    base: type
    packages: tuple[str, ...]
    more: tuple[Registration, ...] = ()

    def extended_with(self, *more: Registration) -> Registry[T]:
        """Return a copy with `more` registrations added."""
        return replace(self, more=(*self.more, *more))

    def builtins(self) -> Iterator[Registration]:
        """Yield the built-ins. Each module is imported only when the iteration reaches it."""
        for name in self.packages:
            package = import_module(name)
            yield from getattr(package, "REGISTRATIONS", ())
            for module in iter_modules(getattr(package, "__path__", ())):
                if not module.ispkg:
                    yield from getattr(import_module(f"{name}.{module.name}"), "REGISTRATIONS", ())
        yield from self.more

    def plugins(self) -> tuple[PluginEntryPoint, ...]:
        """Return the entry points of installed packages, without loading them."""
        return plugin_discovery.discover_plugins(self.group)

    def names(self) -> list[str]:
        """Return all names of built-ins and plug-ins, sorted."""
        return sorted({*(listing.name for listing in self.builtins()), *(plugin.name for plugin in self.plugins())})

    def iterate_registrations(self) -> Iterator[Registration | BrokenPlugin]:
        """Load plug-ins and yield all registrations.

        Yield a `BrokenPlugin` for each plug-in that fails to load.
        """
        own = list(self.builtins())
        yield from own
        for plugin in self.plugins():
            try:
                listing = self._plugin_registration(plugin, {listing.name for listing in own})
                listing.parameters()
                yield listing
            except CpschedError as error:
                yield BrokenPlugin(plugin.name, str(error))
            except Exception as error:  # annotations may be unresolvable, or the signature unreadable
                yield BrokenPlugin(
                    plugin.name, str(self._plugin_load_error(plugin, f"{type(error).__name__}: {error}"))
                )

    def find(self, name_or_path: str) -> Registration:
        """Return the registration by name or path.

        Raise `UnknownName` with the known names, or `PluginLoadError`.
        """
        for listing in self.more:
            if listing.name == name_or_path:
                return listing
        if ":" in name_or_path:
            return self.registration_of(plugin_discovery.load_attribute(self.kind, name_or_path), name_or_path)
        for listing in self.builtins():
            if listing.name == name_or_path:
                return listing
        for plugin in self.plugins():
            if plugin.name == name_or_path:
                return self._plugin_registration(plugin, ())
        raise UnknownName(self.kind, name_or_path, self.names())

    def registration_of(self, thing: Any, name_or_path: str = "", origin: str = "") -> Registration:
        """Return a registration for a class, a factory function, or an instance.

        Raise `InvalidValue` for any other object.
        """
        name = name_or_path or import_path(thing)
        if isinstance(thing, Registration):
            return replace(thing, name=name, origin=origin)
        if isinstance(thing, self.base):
            return Registration(
                name, docstring_summary(type(thing)), origin or import_path(thing), lambda: thing, origin=origin
            )
        if inspect.isclass(thing) and not issubclass(thing, self.base):
            raise self._invalid_name(name, f"must derive from {self._base_class_name()}")
        if not callable(thing):
            raise self._invalid_name(
                name_or_path or repr(thing),
                f"must be a {self.kind}: a name, package.module:Class, a class or an instance",
            )
        return Registration(name, docstring_summary(thing), origin or import_path(thing), thing, origin=origin)

    def build(self, name_or_path: str, settings: Mapping[str, str] | None = None, read: FileReader | None = None) -> T:
        """Build an instance by name or path (see `Registration.build`).

        Raise `PluginLoadError` if the factory fails.
        """
        listing = self.find(name_or_path)
        try:
            made = listing.build(settings, read)
        except CpschedError:
            raise
        except CAUGHT_EXCEPTIONS as error:
            raise PluginLoadError(
                self.kind, name_or_path, f"cannot be built: {describe_exception(error)}", plugin_source_location(error)
            ) from error
        return self.require_valid(made, name_or_path)

    def require_valid(self, thing: object, name_or_path: str) -> T:
        """Return `thing` if it derives from `base`, otherwise raise `InvalidValue`."""
        if not isinstance(thing, self.base):
            made = f"builds a {type(thing).__name__}, which does not derive from {self._base_class_name()}"
            raise self._invalid_name(name_or_path, made)
        return cast(T, thing)

    def _plugin_registration(self, plugin: PluginEntryPoint, taken: Collection[str]) -> Registration:
        if plugin.name in taken:
            raise self._plugin_load_error(plugin, "this name belongs to a built-in; rename the entry point")
        rivals = [other.origin for other in self.plugins() if other.name == plugin.name and other != plugin]
        if rivals:
            raise self._plugin_load_error(
                plugin, f"{' and '.join(rivals)} declares the same name; uninstall one of them"
            )
        try:
            return self.registration_of(
                plugin_discovery.load_attribute(self.kind, plugin.words), plugin.name, plugin.origin
            )
        except (PluginLoadError, InvalidValue) as error:
            raise self._plugin_load_error(
                plugin, error.reason if isinstance(error, PluginLoadError) else error.rule
            ) from error

    def _base_class_name(self) -> str:
        return f"{self.base.__name__} ({self.base.__module__})"

    def _invalid_name(self, name_or_path: str, rule: str) -> InvalidValue:
        return InvalidValue(self.kind, name_or_path, rule)

    def _plugin_load_error(self, plugin: PluginEntryPoint, why: str) -> PluginLoadError:
        return PluginLoadError(self.kind, plugin.name, f"plug-in {plugin.words} from {plugin.origin}: {why}")


def import_path(thing: Any) -> str:
    """Return `package.module:Class` for a class, a function or an instance."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


class PolicyRegistries(NamedTuple):
    """The registries of dispatchers and predictors."""

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
