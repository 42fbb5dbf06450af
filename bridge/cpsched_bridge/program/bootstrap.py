"""Puts a bridge together from its settings: adapter, policy, files, metrics. Only the command line does this."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Event
from typing import cast

import structlog

from cpsched import plugin_discovery
from cpsched.errors import RAISED, CpschedError, PluginLoadError, UnknownName, describe_exception, require
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters import Adapter
from cpsched_bridge.child_processes import STALL_TIMEOUT_S
from cpsched_bridge.cycle.backoff import Backoff
from cpsched_bridge.cycle.bridge_health import concerning, require_ready
from cpsched_bridge.cycle.bridge_loop import Bridge, BridgeParts
from cpsched_bridge.cycle.cycle_failures import describe_failure
from cpsched_bridge.cycle.isolation_client import IsolatedDispatcher
from cpsched_bridge.cycle.real_clock import RealClock
from cpsched_bridge.cycle.startup import Seldom, Startup, Step, Teller
from cpsched_bridge.cycle.verified_decision import require_resources
from cpsched_bridge.effective_config import EffectiveConfig, effective_config, with_adapter_defaults
from cpsched_bridge.errors import BackendError, BackendStarting, ClusterUnreachable, InvalidSetting, NotReady
from cpsched_bridge.ports import Backend, Capabilities, Check, LoopClock
from cpsched_bridge.program import settings_validation
from cpsched_bridge.program.background import run_in_background
from cpsched_bridge.settings import Section, Settings
from cpsched_bridge.store import bridge_identity, forecast_state
from cpsched_bridge.store.boost_ledger import BoostLedger
from cpsched_bridge.store.corruption import CorruptContent
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.state_paths import (
    advice_path,
    beginning_file,
    files_bytes,
    journal_path,
    ledger_path,
    lock,
    opened_journal,
    opened_ledger,
    outlook_path,
    pause_file,
)
from cpsched_bridge.telemetry import forecast_memory
from cpsched_bridge.telemetry.cycle_follower import WatchContext
from cpsched_bridge.telemetry.sd_notify import SystemdNotifier
from cpsched_bridge.telemetry.start_forecasts import StartForecasts
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from cpsched_sim import kernel_warm_up
from cpsched_sim.files import read_json

ADAPTERS_FOLDER = "cpsched_bridge.adapters"
SHARED = "shared"
"""The package in that folder that is no adapter."""
ADAPTERS_GROUP = "cpsched.adapters"
LOG_EVERY_S = 10.0
"""How often the log tells how far a beginning is."""
OUTLOOK_EVERY_S = 60.0
KEPT_EVERY_S = 300.0
"""How often what was learned is written down."""
OUTLOOK_SHARE = 50.0
"""Times what the intervals of expected starts took, they are not made again."""


def adapter_of(words: str) -> Adapter:
    """The adapter of that name: an adapter of the project, a plug-in's, or `package.module`.

    Raises `UnknownName` listing the known names, `PluginLoadError` for what is no adapter or cannot be imported.
    """
    own = {module.name for module in iter_modules(import_module(ADAPTERS_FOLDER).__path__)} - {SHARED}
    offered = {plugin.name: plugin.words for plugin in plugin_discovery.discover_plugins(ADAPTERS_GROUP)}
    if words not in own and words not in offered and not set(words) & set(":."):
        raise UnknownName("adapter", words, {*own, *offered})
    found = plugin_discovery.load_attribute(
        "adapter", f"{ADAPTERS_FOLDER}.{words}" if words in own else offered.get(words, words)
    )
    # Not `isinstance`: from Python 3.12 on it overlooks what a module's `__getattr__` offers, and Slurm's has one.
    if lacks := [name for name in ("Options", "connect") if not hasattr(found, name)]:
        raise PluginLoadError("adapter", words, f"has no {' and no '.join(lacks)}")
    return cast(Adapter, found)


@dataclass(frozen=True, slots=True)
class ChosenAdapter:
    """The adapter of the settings, with its options and what it can do with them."""

    adapter: Adapter
    options: Section
    can: Capabilities


def choose_adapter(settings: Settings, where: str = "settings") -> ChosenAdapter:
    """The adapter that the settings ask for, imported now; the cluster is not. Raises `SettingsError`."""
    try:
        adapter = adapter_of(settings.adapter)
    except CpschedError as error:
        raise settings.located(InvalidSetting(("adapter",), settings.adapter, str(error)), where) from error
    options = settings.adapter_options(adapter.Options, where)
    try:
        return ChosenAdapter(adapter, options, capabilities_of(adapter, options))
    except RAISED as error:
        rule = f"cannot tell what it can do: {describe_exception(error)}"
        raise settings.located(InvalidSetting(("adapter",), settings.adapter, rule), where) from error


def capabilities_of(adapter: Adapter, options: Section) -> Capabilities:
    """What the adapter says that it can do; raises `InvalidValue` where that is no `Capabilities`."""
    can = adapter.can(options) if hasattr(adapter, "can") else Capabilities()
    require(isinstance(can, Capabilities), "can", can, "must give a cpsched_bridge.ports.Capabilities")
    return can


def connect(settings: Settings, where: str = "settings", found: ChosenAdapter | None = None) -> Backend:
    """The backend that the settings ask for, of the adapter that was `found` already. Raises `SettingsError`."""
    found = found or choose_adapter(settings, where)
    try:
        return found.adapter.connect(found.options)
    except InvalidSetting as error:
        raise settings.located(error, where) from error


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPolicy:
    """What a bridge decides with, and what is in force."""

    policy: Policy
    fallback: Policy | None
    in_force: EffectiveConfig
    chosen: ChosenAdapter


def prepare_policy(settings: Settings, where: str = "settings") -> PreparedPolicy:
    """The policy and the fallback, made. Raises `SettingsError` for what no bridge can begin with."""
    try:
        spec = settings.policy.spec()
        settings_validation.validate_settings(settings, spec)
        found = choose_adapter(settings, where)
        settings_validation.check_effects(settings, found.options)
        if settings.mode == "advise" and not found.can.boosts:
            raise InvalidSetting(("mode",), settings.mode, f"the adapter {settings.adapter} has nobody to advise")
        policy, fallback = policy_of(with_adapter_defaults(spec, found.can)), fallback_of(settings, found.can)
        told = effective_config(settings, found.options, found.can, spec, policy, fallback)
    except InvalidSetting as error:
        raise settings.located(error, where) from error
    return PreparedPolicy(policy, fallback, told, found)


def policy_of(spec: PolicySpec) -> Policy:
    """The policy, new; files that its settings name are read. Raises what `PolicySpec.build` raises."""
    return spec.build(read_json)


def fallback_of(settings: Settings, can: Capabilities) -> Policy | None:
    """Who decides where the policy hangs or fails; None: nobody does."""
    if not settings.policy.falls_back:
        return None
    return policy_of(with_adapter_defaults(settings.policy.fallback_spec(), can))


@contextmanager
def startup_steps(
    policy: Policy, spec: PolicySpec, settings: Settings, backend: Backend, tell: Teller
) -> Iterator[list[Step]]:
    """What is to be done before the first decision.

    - The adapter's process, where it has one, begins.
    - The kernels are compiled in a process beside the bridge, which goes on with its signs of life meanwhile. Where the
      settings ask for that, the policy's dispatcher decides in this process afterwards.
    - The bridge loads those that it needs itself. What could not be compiled there, or not be kept, it compiles now.
    """
    apart = IsolatedDispatcher(spec, compiles=kernel_warm_up.modules_with_kernels())
    if settings.policy.apart:
        policy.dispatcher = apart

    def compiled() -> str | None:
        words = apart.waits_for()
        if words is None and not settings.policy.apart:
            apart.close()
        return words

    try:
        yield [partial(_reached, backend), compiled, partial(_loaded, tell)]
    finally:
        apart.close()


def _reached(backend: Backend) -> str | None:
    """What the adapter waits for; what goes wrong with it is told by the first cycle."""
    try:
        return backend.not_ready_reason()
    except BackendError:
        return None


def _loaded(tell: Teller) -> None:
    """Load the kernels; what goes wrong with that is told by the first decision, too."""
    try:
        kernel_warm_up.load_all_kernels(tell)
    except Exception as error:
        structlog.get_logger("bridge").error("kernels", detail=describe_failure(error))


def progress_listeners(settings: Settings, systemd: SystemdNotifier, watch: StatusApplication | None) -> list[Teller]:
    """Who is told what a bridge does before it decides: log, systemd, `cpsched status`, the page and `/readyz`."""
    found: list[Teller] = [
        Seldom(_log, LOG_EVERY_S, time.monotonic),
        Seldom(beginning_file(settings).tell, 1.0, time.monotonic),
        partial(_tell_systemd, systemd),
    ]
    return found if watch is None else [*found, watch.begins]


def _log(words: str) -> None:
    structlog.get_logger("bridge").info("begins" if words else "begun", detail=words)


def _tell_systemd(systemd: SystemdNotifier, words: str) -> None:
    """A step of a beginning is a sign of life, and asks for as much time as no step may take."""
    systemd.notify(f"STATUS={words or 'begun'}", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * STALL_TIMEOUT_S)}")


@contextmanager
def make_watch(settings: Settings, backend: Backend, told: EffectiveConfig) -> Iterator[StatusApplication | None]:
    """What listens to the cycles and is served over HTTP, if anything is enabled."""
    if not (settings.metrics.enabled or settings.serves_page):
        yield None
        return
    watch = StatusApplication(settings, partial(watch_context, settings, backend))
    endpoint = HttpServer(watch.app(), settings.metrics.host, settings.metrics.port)
    structlog.get_logger("bridge").info("watch", metrics=f"{endpoint.url}metrics", page=endpoint.url)
    try:
        with refresh_forecasts(watch.outlook, outlook_path(settings)) if settings.serves_page else nullcontext():
            yield watch
    finally:
        endpoint.close()


@contextmanager
def refresh_forecasts(outlook: StartForecasts, path: Path) -> Iterator[None]:
    """Make intervals of expected starts once a minute, in a thread; less often where that takes long.

    What was learned is taken from the file at `path`, and written there every few minutes and at the end.
    """
    log = structlog.get_logger("outlook")
    load_forecast_state(outlook, path)

    def again_and_again(over: Event) -> None:
        pause_s, kept_s = OUTLOOK_EVERY_S, time.monotonic()
        while not over.wait(pause_s):
            began_s = time.monotonic()
            try:
                outlook.refresh()
            except Exception as error:  # an outlook is no reason to end for a bridge
                log.error("outlook", detail=describe_failure(error))
            if time.monotonic() - kept_s > KEPT_EVERY_S:
                kept_s = time.monotonic()
                save_forecast_state(outlook, path)
            pause_s = max(OUTLOOK_EVERY_S, OUTLOOK_SHARE * (time.monotonic() - began_s))

    try:
        with run_in_background("outlook", again_and_again):
            yield
    finally:
        save_forecast_state(outlook, path)


def load_forecast_state(outlook: StartForecasts, path: Path) -> None:
    """Let an outlook begin with what the file holds; one that cannot be read is told of, and replaced by the next."""
    try:
        kept = forecast_state.read(path)
        if kept is not None:
            outlook.recall(forecast_memory.memory_from_json(kept))
    except (OSError, CorruptContent) as error:
        structlog.get_logger("outlook").warning("outlook_forgotten", detail=f"{path}: {error}: it begins anew")


def save_forecast_state(outlook: StartForecasts, path: Path) -> None:
    """Write what an outlook has learned; a bridge does not end for it where that fails."""
    try:
        kept = outlook.kept()
        if kept is not None:
            forecast_state.write(path, kept)
    except Exception as error:
        structlog.get_logger("outlook").error("outlook_not_kept", detail=describe_failure(error))


def watch_context(settings: Settings, backend: Backend) -> WatchContext:
    """What the watch shows besides the cycles."""
    return WatchContext(
        interval_s=settings.cycle.interval_s,
        journal_bytes=files_bytes(journal_path(settings)),
        ledger_bytes=files_bytes(ledger_path(settings)),
        child_starts=backend.child_starts,
        paused=pause_file(settings).reason() if settings.mode != "shadow" else None,
    )


def run(settings: Settings, where: str) -> list[str]:
    """Run a bridge until a signal ends it; what kept held jobs from being handed back, a line each."""
    ready = prepare_policy(settings, where)
    policy, told = ready.policy, ready.in_force
    log = structlog.get_logger("bridge")
    for warning in settings.warnings:
        log.warning("retired_setting", detail=warning)
    backend, systemd = connect(settings, where, ready.chosen), SystemdNotifier()
    try:
        held_lock = lock(settings)
    except BaseException:
        backend.close()
        raise
    try:
        pace = RealClock()
        with pace.stopped_by_signals(), make_watch(settings, backend, told) as watch:
            startup = Startup(tellers=progress_listeners(settings, systemd, watch))
            most_s = settings.cycle.max_backoff_s
            if settings.mode != "shadow" and not check_until_ready(
                backend, pace, systemd, most_s, startup.tell, settings.mode
            ):
                return []
            with (
                startup_steps(policy, told.policy, settings, backend, startup.tell) as startup.steps,
                opened_ledger(settings) as ledger,
                opened_journal(settings, read_only=False) as journal,
            ):
                warn_of_held_jobs(settings, ledger)
                warn_of_boosts(settings)
                listeners = [] if watch is None else [watch]
                parts = BridgeParts(
                    backend, policy, told, ledger, journal, pause_file(settings), pace, settings,
                    listeners, ready.fallback, systemd, startup,
                )  # fmt: skip
                return Bridge(parts).run()
    except InvalidSetting as error:
        raise settings.located(error, where) from error
    finally:
        beginning_file(settings).tell("")
        backend.close()
        held_lock.release()


def checks_of_reading(backend: Backend, settings: Settings, where: str = "settings") -> list[Check]:
    """Whether another bridge claims the cluster; nothing where the cluster cannot be read.

    Raises `SettingsError` where a setting does not go with the cluster.
    """
    try:
        seen = backend.observe()
        require_resources(settings.policy.power.cap(), seen.cluster)
    except BackendError:
        return []
    except InvalidSetting as error:
        raise settings.located(error, where) from error
    claim = seen.claim
    ok = claim is None or claim.bridge == bridge_identity.known_bridge_name(settings.state_dir)
    found = "none claims this cluster" if claim is None or ok else f"claimed by {claim.where}"
    return [
        Check("other bridges", ok, found, "stop that bridge, or take its place with `cpsched take-leadership`", False)
    ]


def check(backend: Backend, mode: str = "control") -> None:
    """Raise `NotReady` unless everything that the mode requires holds; what else does not hold is logged.

    Raises `ClusterUnreachable` where that cannot be told, since the cluster does not answer, and `BackendStarting`
    where the
    adapter has not begun to ask.
    """
    try:
        checks = concerning(backend.checks(), mode)
    except BackendStarting:
        raise
    except BackendError as error:
        raise ClusterUnreachable(f"{mode} mode is refused: the cluster cannot be checked: {error}") from error
    for each in checks:
        if not each.ok and not each.required:
            structlog.get_logger("bridge").warning("check", name=each.name, found=each.detail, mend=each.mend)
    try:
        require_ready(checks, mode)
    except NotReady as error:
        if all(each.may_come for each in checks if each.required and not each.ok):
            raise ClusterUnreachable(str(error)) from error
        raise


def patient_checks(backend: Backend, tell: Teller) -> Sequence[Check]:
    """The backend's checks, however long its adapter takes to begin; `tell` is told what is waited for."""
    while True:
        try:
            return backend.checks()
        except BackendStarting as begins:
            tell(str(begins))


def check_until_ready(
    backend: Backend,
    pace: LoopClock,
    systemd: SystemdNotifier,
    max_wait_s: float,
    tell: Teller = lambda words: None,
    mode: str = "control",
) -> bool:
    """Check, and under systemd wait until the cluster can be reached; False if a signal ended the waiting.

    An adapter that begins is waited for in any case. By hand, a cluster that does not answer is an error at once. A
    service that ended for it would be started again a few times and then given up for good.
    """
    backoff, attempts = Backoff(2.0, max_wait_s), 0
    tell(f"checks what {mode} mode requires")
    while True:
        try:
            check(backend, mode)
            return True
        except BackendStarting as error:
            tell(str(error))
            if not pace.wait(0.0):
                return False
            continue
        except ClusterUnreachable as error:
            if not systemd.listens:
                raise
            wait_s, attempts = backoff.delay_s(attempts), attempts + 1
            structlog.get_logger("bridge").error("waits_for_the_cluster", detail=str(error), again_in_s=wait_s)
            tell(f"waits for the cluster: {error}")
        systemd.notify("STATUS=waits for the cluster", f"EXTEND_TIMEOUT_USEC={int(2e6 * (wait_s + 60))}")
        if not pace.wait(wait_s):
            return False


def warn_of_boosts(settings: Settings) -> None:
    """Shadow mode takes no points off either."""
    if settings.mode == "shadow" and advice_path(settings).exists():
        jobs = sum(each.points[-1] != 0 for each in BoostLedger.readable(advice_path(settings)).by_id.values())
        if jobs:
            mend = "`cpsched release-all` takes off what is still there"
            structlog.get_logger("bridge").warning("advice_left", jobs=jobs, mend=mend)


def warn_of_held_jobs(settings: Settings, ledger: Ledger) -> None:
    """Shadow mode touches nothing, also not what an earlier bridge in control left held: say so."""
    kept = ledger.kept()
    if kept and settings.mode == "shadow":
        structlog.get_logger("bridge").warning(
            "held_jobs_left", jobs=len(kept), mend="`cpsched release-all` hands them back to the cluster's scheduler"
        )
