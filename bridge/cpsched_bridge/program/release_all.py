"""`cpsched release-all`: held jobs go back to the cluster's own scheduler, whether or not a bridge is alive."""

from __future__ import annotations

import contextlib
import time

from cpsched.errors import abbreviate
from cpsched.formatting import many
from cpsched_bridge.cycle.booster import remove_all_boosts
from cpsched_bridge.cycle.leader_election import HANDED_BACK, RENEWALS_PER_LEASE
from cpsched_bridge.cycle.release_jobs import DiskProblem, release_all_jobs
from cpsched_bridge.errors import AlreadyRunning, BackendError, JobsStillHeld, NoLedger, SettingsError
from cpsched_bridge.ports import Backend, Lease, SupportsBoost
from cpsched_bridge.program import bootstrap
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import bridge_identity, state_paths
from cpsched_bridge.store.boost_ledger import BoostLedger
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.process_files import InstanceLock

SPARE_S = 3.0
"""For a bridge's cycle, beside the time between two beats of its claim."""
CONFIRM_S = 10.0
"""How long a stale heartbeat is watched for a change, as the dead-man script does."""


def release_all(
    settings: Settings, where: str, if_stale_s: float | None, force: bool, confirm_s: float = CONFIRM_S
) -> str:
    """Hand every held job back; the words to print. Raises `JobsStillHeld` for jobs that could not be handed back.

    - Where no bridge has run, or one may not look into the state directory, nothing is done: `SettingsError` is raised.
      With `force` the jobs that the cluster's own records prove to be the bridge's are handed back, and `NoLedger` is
      raised: a mistyped path must not look like success.
    - A ledger that is damaged or gone is no obstacle: what is known without it is handed back, and the words say so.
    - With `if_stale_s`, nothing is done while the bridge's heartbeat is younger than that. One that lies as far in the
      future is stale, too; and one that changes while it is watched is a sign of life, whatever its time.
    - Beside a living bridge nothing is done, and `AlreadyRunning` raised, unless its heartbeat is stale or `force` says
      so.
    - Beside another living bridge that is in control of the cluster, jobs that the submit plugin holds are left to that
      one. It shows its life by its claim there, which is watched for a change.
    - No byte of free disk space is needed.
    """
    unused = _unused(settings)
    if unused is not None and not force:
        raise unused
    if if_stale_s is not None and (life := _sign_of_life(settings, if_stale_s, confirm_s)):
        return f"{life}: nothing to do"
    lock = _lock(settings, must=if_stale_s is None and not force) if unused is None else None
    backend = bootstrap.connect(settings, where)
    try:
        with state_paths.owned(settings), state_paths.emergency_ledger(settings) as ledger:
            own = bridge_identity.known_bridge_name(settings.state_dir)
            words = _hand_back(backend, ledger, _other_bridge(backend, settings), _book(settings), own)
    finally:
        backend.close()
        if lock is not None:
            lock.release()
    if unused is not None:
        raise NoLedger(f"{words}; but {unused}")
    return words


def _unused(settings: Settings) -> SettingsError | None:
    """What is wrong where no sign of a bridge can be found."""
    try:
        state_paths.require_used(settings)
    except SettingsError as error:
        return error
    return None


def _sign_of_life(settings: Settings, stale_s: float, confirm_s: float) -> str:
    """In words, what shows that the bridge lives; empty if nothing does."""
    try:
        age_s = state_paths.heartbeat_age_s(settings)
    except OSError:
        return ""
    if age_s is None:
        return ""
    if abs(age_s) <= stale_s:
        return f"the heartbeat is {age_s:.0f} s old"
    seen, until_s = _beat(settings), time.monotonic() + confirm_s
    while time.monotonic() < until_s:
        time.sleep(min(0.5, confirm_s))
        if _beat(settings) != seen:
            back = "the bridge is back, or the clock was set" if age_s >= 0 else "the clock was set"
            return f"the heartbeat was {age_s:.0f} s old, and beats again: {back}"
    return ""


def _beat(settings: Settings) -> int | None:
    try:
        return settings.heartbeat_path.stat().st_mtime_ns
    except OSError:
        return None


def _lock(settings: Settings, must: bool) -> InstanceLock | None:
    try:
        return state_paths.lock(settings)
    except AlreadyRunning as error:
        if must:
            raise AlreadyRunning(f"{error}; use `cpsched pause` while it works, or --force") from error
        return None
    except SettingsError:
        return None  # a disk that takes no new file: no bridge holds a lock that cannot be made


def _other_bridge(backend: Backend, settings: Settings) -> Lease | None:
    """The claim of another bridge, if that changes within the time in which it does where its bridge lives."""
    own = bridge_identity.known_bridge_name(settings.state_dir)
    try:
        first = backend.observe().claim
        until_s = time.monotonic() + settings.lease.duration_s / RENEWALS_PER_LEASE + SPARE_S
        while first is not None and first.bridge != own and time.monotonic() < until_s:
            time.sleep(min(1.0, SPARE_S))
            now = backend.observe().claim
            if now is not None and now != first:
                return now
    except Exception:  # jobs are handed back whatever can be seen
        return None
    return None


def _leave_word(backend: Backend, own: str) -> None:
    """Leave word on the cluster that the bridge `own` holds nothing, unless another bridge claims the cluster."""
    with contextlib.suppress(BackendError):  # the next bridge then goes by its ledger
        there = backend.observe().claim
        if there is None or there.bridge == own:
            backend.acquire_lease(Lease(own, HANDED_BACK, 0 if there is None else there.beat + 1, "release-all"), there)


def _book(settings: Settings) -> BoostLedger:
    """The book of advice, as far as it can be read; nothing is written into it."""
    return BoostLedger.readable(state_paths.advice_path(settings))


def _hand_back(backend: Backend, ledger: Ledger, other: Lease | None, book: BoostLedger, own: str | None) -> str:
    before = len(ledger.kept())
    problems = release_all_jobs(backend, ledger, "release-all", lambda _: other is not None)
    if isinstance(backend, SupportsBoost):
        problems += remove_all_boosts(backend, book)
    notes = [happening.detail for happening in (*ledger.mishaps, *book.mishaps)]
    if other is not None:
        notes.append(f"another bridge is in control, and keeps what the submit plugin holds: {other.where}")
    notes += [problem for problem in problems if isinstance(problem, DiskProblem)]
    held = [problem for problem in problems if not isinstance(problem, DiskProblem)]
    if held:
        raise JobsStillHeld(abbreviate(held, 5, "; ") + "".join(f"; {note}" for note in notes))
    unwritten = len(held) < len(problems) or any(mishap.kind == "ledger_unwritable" for mishap in ledger.mishaps)
    if unwritten and own is not None:
        _leave_word(backend, own)
    done = f"nothing is held by the bridge any more ({many(before, 'job was', 'jobs were')} by its ledger)"
    if book.by_id:
        done += ", and no job has points of the bridge's"
    return "\n".join([done, *(f"note: {note}" for note in notes)])
