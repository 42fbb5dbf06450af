"""Puts a bridge together from its settings: adapter, policy, files, metrics. Only the command line does this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

import structlog

from cpsched import plugins
from cpsched.catalogue import DISPATCHERS
from cpsched.errors import CpschedError, UnknownName, Unloadable
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters import Adapter
from cpsched_bridge.cycle.apart import Apart
from cpsched_bridge.cycle.guard import require_ready
from cpsched_bridge.cycle.loop import Bridge, Listener
from cpsched_bridge.cycle.pace import RealPace
from cpsched_bridge.errors import BackendError, NotReady, SettingsError, Unreachable
from cpsched_bridge.ports import Backend, Pace
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.places import (
    files_bytes,
    journal_path,
    ledger_path,
    lock,
    opened_journal,
    opened_ledger,
    pause_file,
)
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.following import Surroundings
from cpsched_bridge.watch.server import Watch
from cpsched_bridge.watch.systemd import Systemd
from cpsched_sim.files import read_json

ADAPTERS_FOLDER = "cpsched_bridge.adapters"
ADAPTERS_GROUP = "cpsched.adapters"
DECIDE_S = 0.1
"""How long a decision may take on a real Slurm, where a dispatcher has no limit of its own."""
FIRST_WAIT_S = 2.0


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


def for_the_site(spec: PolicySpec, adapter: str) -> PolicySpec:
    """The same policy; on a real Slurm the site's priorities count in it, unless its settings say how they do.

    A dispatcher that may go by any order goes by the site's; one that weighs jobs gives the site's priorities as much
    weight as its own objective. One that knows a limit in seconds, and has none, gets `DECIDE_S`.
    """
    if adapter != "slurm":
        return spec
    offered = DISPATCHERS.find(spec.dispatcher).defaults()
    heeding = {"order": "priority"} if offered.get("order") == "reg" else {}
    if "site_weight" in offered:
        heeding["site_weight"] = "1"
    if "limit_s" in offered and offered["limit_s"] is None:
        heeding["limit_s"] = str(DECIDE_S)
    return replace(spec, dispatcher_settings={**heeding, **spec.dispatcher_settings})


def fallback_of(settings: Settings) -> Policy | None:
    """Who decides where the policy hangs or fails; None: nobody does."""
    if not settings.policy.falls_back:
        return None
    return policy_of(for_the_site(settings.policy.fallback_spec(), settings.adapter))


@contextmanager
def isolated(policy: Policy, spec: PolicySpec, settings: Settings) -> Iterator[None]:
    """Have the policy's dispatcher decide in a process of its own, where the settings ask for that."""
    if not settings.policy.apart:
        yield
        return
    policy.dispatcher = apart = Apart(spec, policy.overrun)
    try:
        yield
    finally:
        apart.close()


@contextmanager
def watched(settings: Settings, backend: Backend) -> Iterator[tuple[Listener, ...]]:
    """What listens to the cycles and is served over HTTP, if anything is enabled."""
    if not (settings.metrics.enabled or settings.serves_page):
        yield ()
        return
    watch = Watch(settings, partial(surroundings, settings, backend))
    endpoint = Endpoint(watch.app(), settings.metrics.host, settings.metrics.port)
    structlog.get_logger("bridge").info("watch", metrics=f"{endpoint.url}metrics", page=endpoint.url)
    try:
        yield (watch,)
    finally:
        endpoint.close()


def surroundings(settings: Settings, backend: Backend) -> Surroundings:
    """What the watch shows besides the cycles."""
    return Surroundings(
        interval_s=settings.cycle.interval_s,
        journal_bytes=files_bytes(journal_path(settings)),
        ledger_bytes=files_bytes(ledger_path(settings)),
        child_starts=getattr(backend, "child_starts", 0),
        paused=pause_file(settings).reason() if settings.mode == "control" else None,
    )


def run(settings: Settings, where: str) -> list[str]:
    """Run a bridge until a signal ends it; what kept held jobs from being given back, a line each."""
    spec = for_the_site(settings.policy.spec(), settings.adapter)
    policy, fallback = policy_of(spec), fallback_of(settings)
    held_lock = lock(settings)
    backend = connect(settings, where)
    try:
        pace = RealPace()
        pace.stop_on_signals()
        if settings.mode == "control" and not checked(backend, pace, Systemd(), settings.cycle.max_backoff_s):
            return []
        with (
            isolated(policy, spec, settings),
            opened_ledger(settings) as ledger,
            opened_journal(settings, read_only=False) as journal,
            watched(settings, backend) as listeners,
        ):
            warn_of_kept(settings, ledger)
            pause = pause_file(settings)
            return Bridge(backend, policy, spec, ledger, journal, pause, pace, settings, listeners, fallback).run()
    finally:
        backend.close()
        held_lock.release()


def check(backend: Backend) -> None:
    """Raise `NotReady` unless everything that control mode requires holds; what else does not hold is logged.

    Raises `Unreachable` where that cannot be told, since the cluster does not answer.
    """
    try:
        checks = backend.checks()
    except BackendError as error:
        raise Unreachable(f"control mode is refused: the cluster cannot be checked: {error}") from error
    for each in checks:
        if not each.ok and not each.required:
            structlog.get_logger("bridge").warning("check", name=each.name, found=each.detail, mend=each.mend)
    try:
        require_ready(checks)
    except NotReady as error:
        if all(each.may_come for each in checks if each.required and not each.ok):
            raise Unreachable(str(error)) from error
        raise


def checked(backend: Backend, pace: Pace, systemd: Systemd, max_wait_s: float) -> bool:
    """Check, and under systemd wait until the cluster can be reached; False if a signal ended the waiting.

    By hand, a cluster that does not answer is an error at once. A service that ended for it would be started again
    a few times and then given up for good.
    """
    wait_s = FIRST_WAIT_S
    while True:
        try:
            check(backend)
            return True
        except Unreachable as error:
            if not systemd.listens:
                raise
            structlog.get_logger("bridge").error("waits_for_the_cluster", detail=str(error), again_in_s=wait_s)
        systemd.notify("STATUS=waits for the cluster", f"EXTEND_TIMEOUT_USEC={int(2e6 * (wait_s + 60))}")
        if not pace.wait(wait_s):
            return False
        wait_s = min(max_wait_s, 2 * wait_s)


def warn_of_kept(settings: Settings, ledger: Ledger) -> None:
    """Shadow mode touches nothing, also not what an earlier bridge in control left held: say so."""
    kept = ledger.kept()
    if kept and settings.mode == "shadow":
        structlog.get_logger("bridge").warning(
            "held_jobs_left", jobs=len(kept), mend="`cpsched release-all` gives them back to the cluster's scheduler"
        )
