"""Build a bridge (adapter, policy, files, metrics) from its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Event, Thread
from typing import cast

import structlog

from cpsched import plugin_discovery
from cpsched.errors import CAUGHT_EXCEPTIONS, CpschedError, PluginLoadError, UnknownName, describe_exception, require
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.adapters import Adapter
from cpsched_bridge.child_server import STALL_TIMEOUT_S
from cpsched_bridge.cycle.backoff import ExponentialBackoff
from cpsched_bridge.cycle.bridge_loop import Bridge, BridgeComponents
from cpsched_bridge.cycle.cycle_recorder import describe_failure
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.leader_election import JOBS_RELEASED, RELEASED, PeerLink
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle.mode_and_readiness import require_ready, select_checks_for_mode
from cpsched_bridge.cycle.startup import BridgeStartupSteps, ProgressListener, Step, ThrottledProgressReporter
from cpsched_bridge.cycle.verified_decision import require_power_cap_resources
from cpsched_bridge.effective_config import EffectiveConfig, build_effective_config
from cpsched_bridge.errors import BackendError, BackendStarting, ClusterUnreachable, InvalidSetting, NotReady
from cpsched_bridge.ports import Backend, Capabilities, ReadinessCheck, SupportsAccountingChecks
from cpsched_bridge.program import settings_validation
from cpsched_bridge.program.peer_connection import PeerConnection
from cpsched_bridge.settings import Section, Settings
from cpsched_bridge.store import bridge_identity
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.lock_and_request_files import LeadershipFile, PauseFile, StartupProgressFile
from cpsched_bridge.store.state_paths import (
    acquire_instance_lock,
    database_size_bytes,
    forecast_state_path,
    journal_path,
    open_journal,
    open_ledger,
    read_boosts,
    state_path,
)
from cpsched_bridge.telemetry import forecast_state
from cpsched_bridge.telemetry.forecast_outcomes import BridgeStatusFacts
from cpsched_bridge.telemetry.loop_health import SystemdNotifier
from cpsched_bridge.telemetry.start_forecasts import StartForecaster
from cpsched_bridge.web.http_server import HttpServer
from cpsched_bridge.web.status_application import StatusApplication
from cpsched_sim import kernel_warm_up
from cpsched_sim.file_io import read_setting_file

ADAPTERS_FOLDER = "cpsched_bridge.adapters"
SHARED_PACKAGE = "shared"
"""Name of the package in the adapters folder that is not an adapter."""
ADAPTERS_GROUP = "cpsched.adapters"
LOG_EVERY_S = 10.0
"""Seconds between log lines about the progress of the start-up."""
THREAD_END_TIMEOUT_S = 10.0
"""Maximum seconds to wait for a thread to end."""
FORECAST_EVERY_S = 5.0
"""Seconds between forecasts that are fast. A job's first forecast is shown when its user looks for it."""
PEER_SILENT_S = 30.0
"""Seconds without a message after which the second bridge counts as silent."""
SAVE_EVERY_S = 300.0
"""Seconds between writes of the learned state."""
FORECAST_PAUSE_FACTOR = 50.0
"""Minimum pause after a forecast, as a multiple of its duration."""


def load_adapter(name_or_path: str) -> Adapter:
    """Return a built-in adapter, a plug-in's adapter, or one in `package.module`.

    Raise `UnknownName`, which lists the known names, or `PluginLoadError` if the module cannot be imported or is not an
    adapter.
    """
    own = {module.name for module in iter_modules(import_module(ADAPTERS_FOLDER).__path__)} - {SHARED_PACKAGE}
    offered = {plugin.name: plugin.words for plugin in plugin_discovery.discover_plugins(ADAPTERS_GROUP)}
    if name_or_path not in own and name_or_path not in offered and not set(name_or_path) & set(":."):
        raise UnknownName("adapter", name_or_path, {*own, *offered})
    found = plugin_discovery.load_attribute(
        "adapter",
        f"{ADAPTERS_FOLDER}.{name_or_path}" if name_or_path in own else offered.get(name_or_path, name_or_path),
    )
    # Not `isinstance`: since Python 3.12, it ignores a module's `__getattr__`, which the Slurm adapter defines.
    if lacks := [name for name in ("Options", "connect") if not hasattr(found, name)]:
        raise PluginLoadError(
            "adapter", name_or_path, f"must define Options and connect; missing: {' and '.join(lacks)}"
        )
    return cast(Adapter, found)


@dataclass(frozen=True, slots=True)
class ConfiguredAdapter:
    """The configured adapter, its options, and its capabilities."""

    adapter: Adapter
    options: Section
    can: Capabilities


def load_configured_adapter(settings: Settings, where: str = "settings") -> ConfiguredAdapter:
    """Import and return the configured adapter without connecting to the cluster.

    Raise `SettingsError`.
    """
    try:
        adapter = load_adapter(settings.adapter)
    except CpschedError as error:
        raise settings.add_location_to_error(
            InvalidSetting(("adapter",), settings.adapter, str(error)), where
        ) from error
    options = settings.parse_adapter_options(adapter.Options, where)
    try:
        return ConfiguredAdapter(adapter, options, read_capabilities(adapter, options))
    except CAUGHT_EXCEPTIONS as error:
        rule = f"its capabilities cannot be read: {describe_exception(error)}"
        raise settings.add_location_to_error(InvalidSetting(("adapter",), settings.adapter, rule), where) from error


def read_capabilities(adapter: Adapter, options: Section) -> Capabilities:
    """Return an adapter's capabilities.

    Raise `InvalidValue` if they are not a `Capabilities` object.
    """
    can = adapter.can(options) if hasattr(adapter, "can") else Capabilities()
    require(isinstance(can, Capabilities), "can", can, "must return a cpsched_bridge.ports.Capabilities")
    return can


def connect_backend(settings: Settings, where: str = "settings", found: ConfiguredAdapter | None = None) -> Backend:
    """Connect to the cluster and return the backend. Raise `SettingsError`.

    Use the adapter in `found` if it is given.
    """
    found = found or load_configured_adapter(settings, where)
    try:
        return found.adapter.connect(found.options)
    except InvalidSetting as error:
        raise settings.add_location_to_error(error, where) from error


@dataclass(frozen=True, slots=True, eq=False)
class BridgePolicies:
    """A bridge's policies and effective settings."""

    policy: Policy
    fallback: Policy | None
    config: EffectiveConfig
    chosen: ConfiguredAdapter


def build_bridge_policies(settings: Settings, where: str = "settings") -> BridgePolicies:
    """Return the policies and effective settings. Raise `SettingsError`."""
    try:
        spec = settings.policy.to_spec()
        settings_validation.validate_settings(settings, spec)
        found = load_configured_adapter(settings, where)
        settings_validation.check_settings_have_effect(settings, found.options)
        if settings.mode == "advise" and not found.can.boosts:
            raise InvalidSetting(
                ("mode",),
                settings.mode,
                f"is not supported by the adapter {settings.adapter}; use shadow",
            )
        if settings.preemption.choose and not found.can.preemption:
            rule = f"is not supported by the adapter {settings.adapter} with these options; use false"
            raise InvalidSetting(("preemption", "choose"), "true", rule)
        if settings.preemption.choose and settings.policy.power.cap_w is not None:
            raise InvalidSetting(("preemption", "choose"), "true", "must be false with policy.power.cap_w")
        policy, fallback = make_policy(settings.policy.to_spec(found.can)), make_fallback(settings, found.can)
        effective = build_effective_config(settings, found.options, found.can, policy, fallback)
    except InvalidSetting as error:
        raise settings.add_location_to_error(error, where) from error
    return BridgePolicies(policy, fallback, effective, found)


def make_policy(spec: PolicySpec) -> Policy:
    """Return the policy, and read the files that its settings name.

    Raise the same errors as `PolicySpec.build`.
    """
    return spec.build(read_setting_file)


def make_fallback(settings: Settings, can: Capabilities) -> Policy | None:
    """Return the fallback policy, or None if none is configured."""
    if not settings.policy.has_fallback:
        return None
    return make_policy(settings.policy.to_fallback_spec(can))


@contextmanager
def plan_startup_steps(
    policy: Policy, spec: PolicySpec, settings: Settings, backend: Backend, show_step: ProgressListener
) -> Iterator[list[Step]]:
    """Yield a list of the steps that precede the first decision.

    - Start the adapter's process, if it has one.
    - Compile the kernels in a separate process, so that the bridge can keep sending keep-alive calls. Depending on the
      settings, the policy's dispatcher later makes its decisions in that process.
    - Load the kernels that the bridge needs. Compile those that the separate process did not compile or cache.
    """
    apart = IsolatedDispatcher(spec, compiles=kernel_warm_up.modules_with_kernels())
    if settings.policy.is_isolated:
        policy.dispatcher = apart

    def read_compilation_step() -> str | None:
        text = apart.not_ready_reason()
        if text is None and not settings.policy.is_isolated:
            apart.close()
        return text

    try:
        yield [partial(_read_backend_startup_step, backend), read_compilation_step, partial(_load_kernels, show_step)]
    finally:
        apart.close()


def _read_backend_startup_step(backend: Backend) -> str | None:
    """Return the adapter's current start-up step, or None.

    The first cycle reports the adapter's errors.
    """
    try:
        return backend.not_ready_reason()
    except BackendError:
        return None


def _load_kernels(show_step: ProgressListener) -> None:
    """Load the kernels. The first decision reports any errors."""
    try:
        kernel_warm_up.load_registered_kernels(show_step)
    except Exception as error:
        structlog.get_logger("bridge").error("kernels_not_loaded", detail=describe_failure(error))


def make_progress_listeners(
    settings: Settings, systemd: SystemdNotifier, watch: StatusApplication | None
) -> list[ProgressListener]:
    """Return the start-up listeners: log, systemd, `cpsched status`, page, `/readyz`."""
    found: list[ProgressListener] = [
        ThrottledProgressReporter(_log_startup_step, LOG_EVERY_S, time.monotonic),
        ThrottledProgressReporter(StartupProgressFile(settings.state_dir).write_step, 1.0, time.monotonic),
        partial(_notify_systemd, systemd),
    ]
    return found if watch is None else [*found, watch.on_startup_step]


def _log_startup_step(text: str) -> None:
    structlog.get_logger("bridge").info("begins" if text else "begun", detail=text)


def _notify_systemd(systemd: SystemdNotifier, text: str) -> None:
    """Send a keep-alive to systemd, and extend its timeout.

    The extension is a step's maximum duration.
    """
    systemd.notify(f"STATUS={text or 'started'}", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * STALL_TIMEOUT_S)}")


@contextmanager
def make_status_application(
    settings: Settings, backend: Backend, effective: EffectiveConfig
) -> Iterator[StatusApplication | None]:
    """Yield the listener for the metrics and the page, or None if both are off."""
    if not (settings.metrics.enabled or settings.serves_page):
        yield None
        return
    watch = StatusApplication(settings, partial(read_bridge_status_facts, settings, backend))
    endpoint = HttpServer(watch.build_app(), settings.metrics.host, settings.metrics.port)
    structlog.get_logger("bridge").info("watch", metrics=f"{endpoint.url}metrics", page=endpoint.url)
    try:
        with (
            refresh_forecasts_in_background(watch, forecast_state_path(settings))
            if settings.serves_page
            else nullcontext()
        ):
            yield watch
    finally:
        endpoint.close()


@contextmanager
def refresh_forecasts_in_background(watch: StatusApplication, path: Path) -> Iterator[None]:
    """Refresh and write the forecasts in a thread, every minute or less often.

    The pause is longer if a refresh is slow. The learned state is read from `path` and written there every
    `SAVE_EVERY_S` seconds and at the end.
    """
    log, forecaster = structlog.get_logger("start_forecasts"), watch.forecaster
    load_forecast_state(forecaster, path)

    def refresh_until_stopped(over: Event) -> None:
        pause_s, kept_s = FORECAST_EVERY_S, time.monotonic()
        while not over.wait(pause_s):
            began_s = time.monotonic()
            try:
                forecaster.refresh()
                watch.write_start_forecasts_file()
            except Exception as error:  # a failed forecast must not stop the bridge
                log.error("refresh_failed", detail=describe_failure(error))
            if time.monotonic() - kept_s > SAVE_EVERY_S:
                kept_s = time.monotonic()
                save_forecast_state(forecaster, path)
            pause_s = max(FORECAST_EVERY_S, FORECAST_PAUSE_FACTOR * (time.monotonic() - began_s))

    try:
        with run_in_background("start-forecasts", refresh_until_stopped):
            yield
    finally:
        save_forecast_state(forecaster, path)


@contextmanager
def run_in_background(name: str, work: Callable[[Event], None]) -> Iterator[None]:
    """Run `work` in a thread until the block ends.

    `work` must return soon after its event is set.
    """
    over = Event()
    thread = Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(THREAD_END_TIMEOUT_S)


def load_forecast_state(forecaster: StartForecaster, path: Path) -> None:
    """Load the forecasts' learned state. If the file is unreadable, log a warning."""
    try:
        kept = forecast_state.read_forecast_state(path)
        if kept is not None:
            forecaster.restore_memory_when_clock_known(forecast_state.forecast_state_from_json(kept))
    except (OSError, CorruptFileContent) as error:
        structlog.get_logger("start_forecasts").warning(
            "state_unreadable", detail=f"{path}: {error}; forecasts start without history"
        )


def save_forecast_state(forecaster: StartForecaster, path: Path) -> None:
    """Write the forecasts' learned state. A failure does not stop the bridge."""
    try:
        kept = forecaster.export_memory()
        if kept is not None:
            forecast_state.write_forecast_state(path, kept)
    except Exception as error:
        structlog.get_logger("start_forecasts").error("state_not_written", detail=describe_failure(error))


def read_bridge_status_facts(settings: Settings, backend: Backend) -> BridgeStatusFacts:
    """Return the metrics' and the page's facts that are not in cycle reports."""
    return BridgeStatusFacts(
        interval_s=settings.cycle.interval_s,
        journal_bytes=database_size_bytes(journal_path(settings)),
        ledger_bytes=database_size_bytes(state_path(settings)),
        child_starts=backend.child_starts,
        paused=PauseFile(settings.state_dir).read_reason() if settings.mode != "shadow" else None,
    )


def run_bridge(settings: Settings, where: str) -> list[str]:
    """Run a bridge until a signal stops it.

    Return one line for each problem that occurred while releasing jobs.
    """
    ready = build_bridge_policies(settings, where)
    policy, effective = ready.policy, ready.config
    backend, systemd = connect_backend(settings, where, ready.chosen), SystemdNotifier()
    try:
        held_lock = acquire_instance_lock(settings)
    except BaseException:
        backend.close()
        raise
    try:
        pace = LoopClock()
        with pace.stop_on_signals(), make_status_application(settings, backend, effective) as watch:
            startup = BridgeStartupSteps(progress_listeners=make_progress_listeners(settings, systemd, watch))
            if settings.mode != "shadow" and not check_until_ready(
                settings, backend, pace, systemd, startup.report_step
            ):
                return []
            with (
                plan_startup_steps(policy, effective.policy, settings, backend, startup.report_step) as startup.steps,
                open_ledger(settings) as ledger,
                open_journal(settings, read_only=False) as journal,
            ):
                warn_of_held_jobs(settings, ledger)
                warn_of_boosts(settings)
                listeners = [] if watch is None else [watch]
                connection = PeerConnection(settings.lease) if settings.lease.peer else None
                link = PeerLink() if connection is None else connection.link
                parts = BridgeComponents(
                    backend, policy, effective, ledger, journal, PauseFile(settings.state_dir), pace, settings,
                    listeners, ready.fallback, systemd, startup, link,
                )  # fmt: skip
                bridge = Bridge(parts)
                if connection is None:
                    return bridge.run()
                with connection.run(bridge.keep_link):
                    return bridge.run()
    except InvalidSetting as error:
        raise settings.add_location_to_error(error, where) from error
    finally:
        StartupProgressFile(settings.state_dir).write_step("")
        backend.close()
        held_lock.release()


def check_other_leader(backend: Backend, settings: Settings, where: str = "settings") -> list[ReadinessCheck]:
    """Return a check that no other bridge holds the lease, if the cluster can be read.

    Raise `SettingsError` if a setting does not match the cluster.
    """
    try:
        seen = backend.observe()
        require_power_cap_resources(settings.policy.power.to_power_cap(), seen.cluster)
    except BackendError:
        return []
    except InvalidSetting as error:
        raise settings.add_location_to_error(error, where) from error
    lease = seen.lease
    is_free = lease is None or lease.run in (RELEASED, JOBS_RELEASED)
    ok = lease is None or is_free or lease.bridge == bridge_identity.read_bridge_name(settings.state_dir)
    found = (
        "no other bridge holds the lease on this cluster"
        if lease is None or ok
        else f"the lease is held by {lease.where}"
    )
    return [
        ReadinessCheck(
            "other bridges", ok, found, "stop that bridge, or take control with `cpsched take-leadership`", False
        ),
        check_standby(settings),
    ]


def check_standby(settings: Settings) -> ReadinessCheck:
    """Return an optional check that a second bridge answers, as of the last cycle."""
    if not settings.lease.peer:
        return ReadinessCheck("standby", True, "optional: no second bridge is configured in lease.peer", required=False)
    status = LeadershipFile(settings.state_dir).read()
    heard_s = None if status is None else status.heard_unix_s
    ok = heard_s is not None and time.time() - heard_s < PEER_SILENT_S
    return ReadinessCheck(
        "standby",
        ok,
        f"the bridge at {settings.lease.peer} {'answers' if ok else 'was not heard'}",
        "start both bridges, and check that lease.secret_file is equal on both hosts and that no firewall blocks the "
        "ports",
        required=False,
    )


def check_accounting(backend: Backend, days: float) -> Sequence[ReadinessCheck]:
    """Return the backend's checks on jobs from the last `days` days."""
    if not isinstance(backend, SupportsAccountingChecks):
        return [
            ReadinessCheck(
                "accounting share", False, "this adapter does not read accounting records", "omit --accounting", False
            )
        ]
    try:
        return backend.accounting_checks(days)
    except BackendError as error:
        return [ReadinessCheck("accounting share", False, str(error), "start the accounting database", False)]


def require_checks(backend: Backend, mode: str = "control") -> None:
    """Raise `NotReady` if a check fails that the mode requires.

    Log all other failed checks. Raise `ClusterUnreachable` if the cluster does not answer, and `BackendStarting` if the
    adapter is still starting.
    """
    try:
        checks = select_checks_for_mode(backend.run_checks(), mode)
    except BackendStarting:
        raise
    except BackendError as error:
        raise ClusterUnreachable(f"mode={mode}: the cluster cannot be checked: {error}") from error
    for each in checks:
        if not each.ok and not each.required:
            structlog.get_logger("bridge").warning("check", name=each.name, found=each.detail, fix=each.fix)
    try:
        require_ready(checks, mode)
    except NotReady as error:
        if all(each.may_pass_later for each in checks if each.required and not each.ok):
            raise ClusterUnreachable(str(error)) from error
        raise


def wait_for_checks(backend: Backend, show_step: ProgressListener) -> Sequence[ReadinessCheck]:
    """Wait until the adapter has started, and return the backend's checks.

    Report each step to `show_step`.
    """
    while True:
        try:
            return backend.run_checks()
        except BackendStarting as begins:
            show_step(str(begins))


def check_until_ready(
    settings: Settings,
    backend: Backend,
    pace: LoopClock,
    systemd: SystemdNotifier,
    show_step: ProgressListener = lambda words: None,
) -> bool:
    """Check the mode's requirements.

    Return False if a signal interrupted the wait for the cluster. Always wait for an adapter that is starting. Under
    systemd, also wait until the cluster answers: systemd would restart a failed service only a few times. If the bridge
    was started manually, a cluster that does not answer is an error.
    """
    backoff, attempts = ExponentialBackoff(2.0, settings.cycle.max_backoff_s), 0
    show_step(f"checking the requirements of {settings.mode} mode")
    while True:
        try:
            require_checks(backend, settings.mode)
            return True
        except BackendStarting as error:
            show_step(str(error))
            if not pace.wait(0.0):
                return False
            continue
        except ClusterUnreachable as error:
            if not systemd.is_listening:
                raise
            wait_s, attempts = backoff.delay_s(attempts), attempts + 1
            structlog.get_logger("bridge").error("waits_for_the_cluster", detail=str(error), again_in_s=wait_s)
            show_step(f"waiting for the cluster: {error}")
        systemd.notify("STATUS=waiting for the cluster", f"EXTEND_TIMEOUT_USEC={int(2e6 * (wait_s + 60))}")
        if not pace.wait(wait_s):
            return False


def warn_of_boosts(settings: Settings) -> None:
    """Warn about boosts that are still set, because shadow mode does not remove them."""
    if settings.mode == "shadow":
        jobs = sum(each.points[-1] != 0 for each in read_boosts(settings).values())
        if jobs:
            fix = "run `cpsched release-all` to remove them"
            structlog.get_logger("bridge").warning("boosts_remain", jobs=jobs, fix=fix)


def warn_of_held_jobs(settings: Settings, ledger: Ledger) -> None:
    """Warn about jobs that an earlier bridge in control mode still holds.

    Shadow mode does not release them.
    """
    kept = ledger.list_managed_job_ids()
    if kept and settings.mode == "shadow":
        structlog.get_logger("bridge").warning(
            "held_jobs_left",
            jobs=len(kept),
            fix="run `cpsched release-all` to release them to the cluster's scheduler",
        )
