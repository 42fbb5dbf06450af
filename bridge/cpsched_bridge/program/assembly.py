"""Puts a bridge together from its settings: adapter, policy, files, metrics. Only the command line does this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

import structlog

from cpsched import plugins
from cpsched.errors import CpschedError, UnknownName, Unloadable
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters import Adapter
from cpsched_bridge.cycle.guard import require_ready
from cpsched_bridge.cycle.loop import Bridge, Listener
from cpsched_bridge.cycle.pace import RealPace
from cpsched_bridge.errors import BackendError, NotReady, SettingsError
from cpsched_bridge.ports import Backend
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.places import lock, opened_journal, opened_ledger, pause_file
from cpsched_bridge.watch.exporter import Endpoint, Exporter
from cpsched_sim.files import read_json

ADAPTERS_FOLDER = "cpsched_bridge.adapters"
ADAPTERS_GROUP = "cpsched.adapters"


def adapter_of(words: str) -> Adapter:
    """The adapter of that name: an adapter of the project, a plug-in's, or `package.module`.

    Raises `UnknownName` listing the known names, `Unloadable` for what is no adapter or cannot be imported.
    """
    own = {module.name for module in iter_modules(import_module(ADAPTERS_FOLDER).__path__)}
    offered = {plugin.name: plugin.words for plugin in plugins.plugins(ADAPTERS_GROUP)}
    if words not in own and words not in offered and not set(words) & set(":."):
        raise UnknownName("adapter", words, {*own, *offered})
    found = plugins.loaded("adapter", f"{ADAPTERS_FOLDER}.{words}" if words in own else offered.get(words, words))
    # Not `isinstance`: from Python 3.12 on it overlooks what a module's `__getattr__` offers, and Slurm's has one.
    if lacks := [name for name in ("Options", "connect") if not hasattr(found, name)]:
        raise Unloadable("adapter", words, f"has no {' and no '.join(lacks)}")
    return cast(Adapter, found)


def connect(settings: Settings, where: str = "settings") -> Backend:
    """The backend that the settings ask for; its adapter is imported now. Raises `SettingsError`."""
    try:
        adapter = adapter_of(settings.adapter)
    except CpschedError as error:
        raise SettingsError(f"{where}: {error}") from error
    return adapter.connect(settings.adapter_options(adapter.Options, where))


def policy_of(spec: PolicySpec) -> Policy:
    """The policy, new; files that its settings name are read. Raises what `PolicySpec.build` raises."""
    return spec.build(read_json)


@contextmanager
def metrics(settings: Settings) -> Iterator[tuple[Listener, ...]]:
    """The exporter behind its endpoint, if it is enabled."""
    if not settings.metrics.enabled:
        yield ()
        return
    exporter = Exporter()
    endpoint = Endpoint(exporter, settings.metrics.host, settings.metrics.port)
    structlog.get_logger("bridge").info("metrics", url=endpoint.url)
    try:
        yield (exporter,)
    finally:
        endpoint.close()


def run(settings: Settings, where: str) -> list[str]:
    """Run a bridge until a signal ends it; what kept held jobs from being given back, a line each."""
    spec = settings.policy.spec()
    policy = policy_of(spec)
    held_lock = lock(settings)
    backend = connect(settings, where)
    try:
        if settings.mode == "control":
            check(backend)
        pace = RealPace()
        pace.stop_on_signals()
        with (
            opened_ledger(settings) as ledger,
            opened_journal(settings, read_only=False) as journal,
            metrics(settings) as listeners,
        ):
            warn_of_kept(settings, ledger)
            pause = pause_file(settings)
            return Bridge(backend, policy, spec, ledger, journal, pause, pace, settings, listeners).run()
    finally:
        backend.close()
        held_lock.release()


def check(backend: Backend) -> None:
    """Raise `NotReady` unless everything that control mode requires holds."""
    try:
        checks = backend.checks()
    except BackendError as error:
        raise NotReady(f"control mode is refused: the cluster cannot be checked: {error}") from error
    require_ready(checks)


def warn_of_kept(settings: Settings, ledger: Ledger) -> None:
    """Shadow mode touches nothing, also not what an earlier bridge in control left held: say so."""
    kept = ledger.kept()
    if kept and settings.mode == "shadow":
        structlog.get_logger("bridge").warning(
            "held_jobs_left", jobs=len(kept), mend="`cpsched release-all` gives them back to the cluster's scheduler"
        )
