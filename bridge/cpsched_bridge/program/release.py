"""`cpsched release-all`: held jobs go back to the cluster's own scheduler, whether or not a bridge is alive."""

from __future__ import annotations

from cpsched_bridge.cycle.hand_back import give_all_back
from cpsched_bridge.errors import AlreadyRunning, StillHeld
from cpsched_bridge.ports import Backend
from cpsched_bridge.program import assembly
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import places
from cpsched_bridge.store.instance import InstanceLock
from cpsched_bridge.store.ledger import Ledger


def release_all(settings: Settings, where: str, if_stale_s: float | None, force: bool) -> str:
    """Give every held job back; the words to print. Raises `StillHeld` for jobs that could not be given back.

    - With `if_stale_s`, nothing is done while the bridge's heartbeat is younger than that.
    - Beside a living bridge nothing is done, and `AlreadyRunning` raised, unless its heartbeat is stale or `force` says
      so.
    """
    if if_stale_s is not None:
        age_s = places.heartbeat_age_s(settings)
        if age_s is not None and age_s <= if_stale_s:
            return f"the heartbeat is {age_s:.0f} s old: nothing to do"
    lock = _lock(settings, must=if_stale_s is None and not force)
    backend = assembly.connect(settings, where)
    try:
        with places.opened_ledger(settings) as ledger:
            return _give_back(backend, ledger)
    finally:
        backend.close()
        if lock is not None:
            lock.release()


def _lock(settings: Settings, must: bool) -> InstanceLock | None:
    try:
        return places.lock(settings)
    except AlreadyRunning as error:
        if must:
            raise AlreadyRunning(f"{error}; use `cpsched pause` while it works, or --force") from error
        return None


def _give_back(backend: Backend, ledger: Ledger) -> str:
    before = len(ledger.kept())
    problems = give_all_back(backend, ledger, "release-all")
    if problems:
        raise StillHeld("; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else ""))
    return f"nothing is held by the bridge any more ({before} jobs were by its ledger)"
