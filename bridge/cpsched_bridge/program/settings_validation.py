"""Check settings against dispatchers, addresses, directories, and systemd.

The settings models check each setting individually. The checks in this module need more facts. `cpsched bridge`,
`cpsched config` and `cpsched doctor` run these checks.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cpsched.errors import CpschedError, InvalidValue, UnknownName
from cpsched.policy_spec import PolicySpec
from cpsched.registry import DISPATCHERS, PREDICTORS, Registry
from cpsched_bridge.cycle.cycle_timing import MIN_TRIGGERED_INTERVAL_S
from cpsched_bridge.effective_config import to_yaml
from cpsched_bridge.errors import InvalidSetting
from cpsched_bridge.settings import Section, Settings
from cpsched_bridge.telemetry.loop_health import SystemdNotifier
from cpsched_sim.file_io import read_setting_file
from cpsched_sim.program_runner import ProgramRunner

SHIPPED_WATCHDOG_S = 120.0
"""`WatchdogSec` in deploy/systemd/cpsched-bridge.service."""
_SYSTEMD_UNIT = "cpsched-bridge.service"


class DependentSetting(NamedTuple):
    """A setting that certain values of other settings make ineffective."""

    setting: str
    """The setting's dotted name, including `options.`."""
    has_effect: Callable[[Settings, Any], bool]
    """Returns whether the setting has an effect, given all settings and the adapter's options."""
    rule: str
    adapter: str = ""
    """Adapter that has this option, or "" for a setting that does not depend on the adapter."""


DEPENDENT_SETTINGS: Sequence[DependentSetting] = (
    DependentSetting(
        "page.user_header",
        lambda settings, options: bool(settings.page.trusted_proxies),
        "requires page.trusted_proxies; otherwise any client could claim to be another user",
    ),
    DependentSetting(
        "page.user_header",
        lambda settings, options: settings.page.users == "show",
        "requires page.users: show, because the page needs names to select a user's jobs",
    ),
    DependentSetting(
        "page.trusted_proxies", lambda settings, options: bool(settings.page.user_header), "requires page.user_header"
    ),
    DependentSetting(
        "page.operators", lambda settings, options: bool(settings.page.user_header), "requires page.user_header"
    ),
    DependentSetting(
        "cycle.trigger_files",
        lambda settings, options: settings.cycle.interval_s > MIN_TRIGGERED_INTERVAL_S,
        f"requires cycle.interval_s above {MIN_TRIGGERED_INTERVAL_S:g}: trigger files start at most 1 cycle per second",
    ),
    DependentSetting(
        "options.format", lambda settings, options: options.trace is not None, "requires options.trace", "mock"
    ),
    *(
        DependentSetting(
            f"options.{name}",
            lambda settings, options: options.trace is None,
            "must not be set together with options.trace: a trace replaces generated jobs",
            "mock",
        )
        for name in ("days", "load", "seed")
    ),
    DependentSetting(
        "options.boost", lambda settings, options: options.site_policy, "requires options.site_policy: true", "slurm"
    ),
)
"""Settings whose non-default values are rejected if they have no effect.

A setting that `mode`, `metrics.enabled` or `page.enabled` disables is accepted, so that these switches can be changed
on their own. Plug-ins check their options in their own models.
"""


def validate_settings(settings: Settings, spec: PolicySpec) -> None:
    """Raise `InvalidSetting` for the first invalid setting.

    `spec` is the effective policy.
    """
    check_goal_fits_dispatcher(settings)
    check_plugin_settings(DISPATCHERS, spec.dispatcher, spec.dispatcher_settings, "dispatcher")
    check_plugin_settings(PREDICTORS, spec.predictor, spec.predictor_settings, "predictor")
    if settings.policy.has_fallback:
        check_plugin_settings(DISPATCHERS, settings.policy.fallback, {}, "fallback")
    check_watchdog(settings)
    check_state_dir(settings)
    check_listen_address(settings)


def check_settings_have_effect(settings: Settings, options: Section) -> None:
    """Raise `InvalidSetting` for the first ineffective setting.

    `DEPENDENT_SETTINGS` lists the settings to check.
    """
    for row in DEPENDENT_SETTINGS:
        *sections, name = row.setting.removeprefix("options.").split(".")
        section: Section = options if row.setting.startswith("options.") else settings
        if row.adapter not in ("", settings.adapter):
            continue
        for each in sections:
            section = getattr(section, each)
        value, default = getattr(section, name), type(section).model_fields[name].get_default(call_default_factory=True)
        if name in section.model_fields_set and value != default and not row.has_effect(settings, options):
            raise InvalidSetting(
                tuple(row.setting.split(".")), to_yaml(section.model_dump(mode="json")[name]), row.rule
            )


def check_goal_fits_dispatcher(settings: Settings) -> None:
    """Raise `InvalidSetting` if the goal conflicts with the dispatcher.

    A goal requires a dispatcher that has an objective, and settings that do not set the objective.
    """
    policy = settings.policy
    if policy.goal is None:
        return
    if "objective" in policy.dispatcher_settings:
        rule = "must not be set together with dispatcher_settings.objective; remove one of them"
        raise InvalidSetting(("policy", "goal"), to_yaml(policy.goal), rule)
    try:
        offered = DISPATCHERS.find(policy.dispatcher).defaults()
    except CpschedError:
        return  # `check_plugin_settings` reports the dispatcher
    if "objective" not in offered:
        rule = (
            f"requires a dispatcher with an objective; {policy.dispatcher} has none. Use lookahead, or remove the goal"
        )
        raise InvalidSetting(("policy", "goal"), to_yaml(policy.goal), rule)


def check_plugin_settings(known: Registry[Any], name_or_path: str, given: dict[str, str] | Any, field: str) -> None:
    """Raise `InvalidSetting` if a dispatcher or predictor rejects its settings."""
    try:
        known.build(name_or_path, given, read_setting_file)
    except CpschedError as error:
        at: tuple[str, ...] = ("policy", field)
        name = error.name if isinstance(error, UnknownName) else getattr(error, "field", "")
        if name in given and name != name_or_path:
            at, name_or_path = ("policy", f"{field}_settings", name), given[name]
        rule = error.rule if isinstance(error, InvalidValue) else str(error)
        raise InvalidSetting(at, name_or_path, rule) from error


def check_watchdog(settings: Settings) -> None:
    """Raise `InvalidSetting` if a decision may outlast systemd's watchdog.

    The watchdog would then kill the bridge.
    """
    decide_s = settings.cycle.decide_timeout_s
    if decide_s < SHIPPED_WATCHDOG_S and SystemdNotifier().watchdog_s is None:
        return
    limit_s = read_watchdog_s()
    if limit_s is not None and decide_s >= limit_s:
        rule = f"must be less than systemd's watchdog, {limit_s:g} s (WatchdogSec of {_SYSTEMD_UNIT})"
        raise InvalidSetting(("cycle", "decide_timeout_s"), f"{decide_s:g}", rule)


def read_watchdog_s() -> float | None:
    """Return the watchdog interval of this service, or else of the unit, in seconds.

    The unit is the installed unit or, if none is installed, the shipped unit. Return None if it has no watchdog.
    """
    if (mine_s := SystemdNotifier().watchdog_s) is not None:
        return mine_s
    command = ["systemctl", "show", "--property=LoadState,WatchdogUSec", _SYSTEMD_UNIT]
    result = ProgramRunner(lambda: os.environ).run(command, 5.0)
    facts = dict(line.partition("=")[::2] for line in result.output.splitlines())
    if not result.has_succeeded or facts.get("LoadState") != "loaded":
        return SHIPPED_WATCHDOG_S
    return parse_systemd_time_span_s(facts.get("WatchdogUSec", ""))


def parse_systemd_time_span_s(span: str) -> float | None:
    """Return the seconds in systemctl's time span, such as `2min 30s`.

    Return None for `0` and `infinity`.
    """
    units = {"min": 60.0, "h": 3600.0, "d": 86400.0, "ms": 1e-3, "us": 1e-6, "s": 1.0}
    total = 0.0
    for word in span.split():
        number = word.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = word[len(number) :]
        if not number or unit not in units:
            return None
        total += float(number) * units[unit]
    return total or None


def check_state_dir(settings: Settings) -> None:
    """Raise `InvalidSetting` unless the directory exists or can be created.

    An existing directory on a read-only disk is accepted.
    """
    path = settings.state_dir
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise InvalidSetting(("state_dir",), path, f"must be a folder: {there} is a file")
    if there != path and not os.access(there, os.W_OK | os.X_OK):
        raise InvalidSetting(("state_dir",), path, f"cannot be created: {there} is not writable by uid {os.geteuid()}")


def check_listen_address(settings: Settings) -> None:
    """Raise `InvalidSetting` if the address cannot be bound.

    An address in use is accepted, because it may become free.
    """
    if not (settings.metrics.enabled or settings.serves_page):
        return
    host, port = settings.metrics.host, settings.metrics.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            return
        name, value = ("port", port) if number == errno.EACCES else ("host", host)
        why = getattr(error, "strerror", None) or error
        raise InvalidSetting(("metrics", name), value, f"the bridge cannot listen on it: {why}") from error
