"""Release held jobs to the cluster's own scheduler, with or without a bridge."""

from __future__ import annotations

import contextlib
import time

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched_bridge.cycle.booster import remove_all_boosts
from cpsched_bridge.cycle.leader_election import JOBS_RELEASED, RENEWALS_PER_LEASE
from cpsched_bridge.cycle.release_jobs import HarmlessDiskProblem, release_all_jobs
from cpsched_bridge.errors import AlreadyRunning, BackendError, JobsStillHeld, ReleasedWithoutLedger, SettingsError
from cpsched_bridge.ports import Backend, Lease, SupportsBoost
from cpsched_bridge.program import bootstrap
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import bridge_identity, state_paths
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.lock_and_request_files import InstanceLock
from cpsched_bridge.store.state_tables import BoostLedger

LEASE_MARGIN_S = 3.0
"""Seconds allowed for one cycle of another bridge, in addition to the time between lease renewals."""
HEARTBEAT_WATCH_S = 10.0
"""Seconds for which a stale heartbeat is observed for changes, as in the dead-man script."""


def release_all(
    settings: Settings, where: str, if_stale_s: float | None, force: bool, confirm_s: float = HEARTBEAT_WATCH_S
) -> str:
    """Release every held job and return the text to print.

    - Raise `JobsStillHeld` if a job cannot be released.
    - Without evidence of a bridge, or without access to the state directory, raise `SettingsError`. With `force`,
      release the jobs that the cluster shows as the bridge's. Then raise `ReleasedWithoutLedger`, because a mistyped
      path must not look like success.
    - If the ledger is damaged or missing, release the jobs that the cluster shows as the bridge's, and report this.
    - With `if_stale_s`, do nothing if the heartbeat is at most that old, or at most that far in the future. A heartbeat
      that changes while it is observed proves that the bridge is alive, regardless of its time.
    - While the bridge is alive, raise `AlreadyRunning` unless its heartbeat is stale or `force` is set.
    - Another bridge is in control if its lease changes while it is observed. Do not release the jobs that the submit
      plugin holds for that bridge.
    - No free disk space is needed.
    """
    unused = _find_unused_state_dir_error(settings)
    if unused is not None and not force:
        raise unused
    if if_stale_s is not None and (life := _find_bridge_alive_evidence(settings, if_stale_s, confirm_s)):
        return f"{life}: nothing to do"
    lock = _acquire_instance_lock(settings, must=if_stale_s is None and not force) if unused is None else None
    backend = bootstrap.connect_backend(settings, where)
    try:
        with state_paths.preserve_ownership(settings), state_paths.open_emergency_ledger(settings) as ledger:
            own = bridge_identity.read_bridge_name(settings.state_dir)
            words = _release_jobs_and_boosts(
                backend, ledger, _find_other_bridge(backend, settings), BoostLedger(ledger.file), own
            )
    finally:
        backend.close()
        if lock is not None:
            lock.release()
    if unused is not None:
        raise ReleasedWithoutLedger(f"{words}; but {unused}")
    return words


def _find_unused_state_dir_error(settings: Settings) -> SettingsError | None:
    """Return the error to raise if there is no evidence of a bridge, or None."""
    try:
        state_paths.require_used_state_dir(settings)
    except SettingsError as error:
        return error
    return None


def _find_bridge_alive_evidence(settings: Settings, stale_s: float, confirm_s: float) -> str:
    """Return the evidence that the bridge is alive, as text, or "" if there is none."""
    try:
        age_s = state_paths.heartbeat_age_s(settings)
    except OSError:
        return ""
    if age_s is None:
        return ""
    if abs(age_s) <= stale_s:
        return f"the heartbeat is {age_s:.0f} s old"
    seen, until_s = _read_heartbeat_mtime_ns(settings), time.monotonic() + confirm_s
    while time.monotonic() < until_s:
        time.sleep(min(0.5, confirm_s))
        if _read_heartbeat_mtime_ns(settings) != seen:
            back = "the bridge runs again, or the clock was set" if age_s >= 0 else "the clock was set"
            return f"the heartbeat was {age_s:.0f} s old and has changed since: {back}"
    return ""


def _read_heartbeat_mtime_ns(settings: Settings) -> int | None:
    try:
        return settings.heartbeat_path.stat().st_mtime_ns
    except OSError:
        return None


def _acquire_instance_lock(settings: Settings, must: bool) -> InstanceLock | None:
    try:
        return state_paths.acquire_instance_lock(settings)
    except AlreadyRunning as error:
        if must:
            raise AlreadyRunning(f"{error}; use `cpsched pause`, or --force") from error
        return None
    except SettingsError:
        return None  # no file can be created, so no bridge can hold a lock


def _find_other_bridge(backend: Backend, settings: Settings) -> Lease | None:
    """Return another bridge's lease if that bridge renews it, or None."""
    own = bridge_identity.read_bridge_name(settings.state_dir)
    try:
        first = backend.observe().lease
        until_s = time.monotonic() + settings.lease.duration_s / RENEWALS_PER_LEASE + LEASE_MARGIN_S
        while first is not None and first.bridge != own and time.monotonic() < until_s:
            time.sleep(min(1.0, LEASE_MARGIN_S))
            now = backend.observe().lease
            if now is not None and now != first:
                return now
    except Exception:  # jobs are released even if the cluster cannot be read
        return None
    return None


def _publish_jobs_released_notice(backend: Backend, own: str) -> None:
    """Record on the cluster that bridge `own` holds no jobs.

    Do nothing if another bridge holds the lease.
    """
    with contextlib.suppress(BackendError):  # the next bridge then uses its ledger
        there = backend.observe().lease
        if there is None or there.bridge == own:
            backend.acquire_lease(
                Lease(own, JOBS_RELEASED, 0 if there is None else there.beat + 1, "release-all"), there
            )


def _release_jobs_and_boosts(
    backend: Backend, ledger: Ledger, other: Lease | None, book: BoostLedger, own: str | None
) -> str:
    before = len(ledger.list_managed_job_ids())
    problems = release_all_jobs(backend, ledger, "release-all", lambda _: other is not None)
    if isinstance(backend, SupportsBoost):
        problems += remove_all_boosts(backend, book)
    notes = [happening.detail for happening in ledger.unreported_events]
    if other is not None:
        notes.append(f"another bridge is in control and keeps the jobs held by the submit plugin: {other.where}")
    notes += [problem for problem in problems if isinstance(problem, HarmlessDiskProblem)]
    held = [problem for problem in problems if not isinstance(problem, HarmlessDiskProblem)]
    if held:
        raise JobsStillHeld(join_abbreviated(held, 5, "; ") + "".join(f"; {note}" for note in notes))
    unwritten = len(held) < len(problems) or any(
        mishap.kind == "ledger_unwritable" for mishap in ledger.unreported_events
    )
    if unwritten and own is not None:
        _publish_jobs_released_notice(backend, own)
    done = f"the bridge no longer holds any job (before: {format_count(before, 'job')} in its ledger)"
    if book.by_id:
        done += ", and no job has a boost set by the bridge"
    return "\n".join([done, *(f"note: {note}" for note in notes)])
