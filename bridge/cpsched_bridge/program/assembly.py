"""Puts a bridge together from its settings: adapter, policy, files, metrics. Only the command line does this."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import structlog

from cpsched_bridge.cycle.guard import require_ready
from cpsched_bridge.cycle.loop import Bridge, Listener
from cpsched_bridge.cycle.pace import RealPace
from cpsched_bridge.errors import BackendError, NotReady, SettingsError
from cpsched_bridge.ports import Backend
from cpsched_bridge.settings import PolicySettings, Settings, as_texts
from cpsched_bridge.store.files import lock, opened_journal, opened_ledger, pause_file
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.replay import policy_of
from cpsched_bridge.store.rounds import PolicyRecord
from cpsched_bridge.watch.exporter import Endpoint, Exporter


def connect(settings: Settings, where: str = "settings") -> Backend:
    """The backend that the settings ask for; its adapter is imported now."""
    try:
        adapter: Any = importlib.import_module(f"cpsched_bridge.adapters.{settings.adapter}")
    except ImportError as error:
        raise SettingsError(f"{where}: adapter={settings.adapter}: {error}") from error
    return cast(Backend, adapter.connect(settings.adapter_options(adapter.Options, where)))


def policy_record(settings: PolicySettings) -> PolicyRecord:
    """The policy as the journal writes it down."""
    return PolicyRecord(
        settings.dispatcher,
        settings.predictor,
        as_texts(settings.dispatcher_settings),
        as_texts(settings.predictor_settings),
        settings.overrun,
    )


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
    record = policy_record(settings.policy)
    policy = policy_of(record)
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
            return Bridge(backend, policy, record, ledger, journal, pause, pace, settings, listeners).run()
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
