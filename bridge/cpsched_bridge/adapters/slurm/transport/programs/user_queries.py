"""Query the AdminLevel of the bridge's user, and the Unix groups of other users on this host.

Answers about groups are cached, and queries have a time limit. The bridge itself queries the AdminLevel, not its
pyslurm child: `sacctmgr` keeps retrying an unreachable accounting database, which must not delay the controller's
answers.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import run_and_read_output

CACHE_S = 60.0
"""Seconds for which an answer is valid. Slurm itself caches group members for ten minutes."""
MAX_QUERY_TIME_S = 0.5
"""Maximum query time in seconds per reading. Users not queried in this time keep their last answer or are unknown."""


@dataclass(slots=True)
class CachingUnixGroupLookup:
    """A cache of the host's answers about users' groups."""

    clock: Callable[[], float] = time.monotonic
    _ids: dict[str, tuple[float, frozenset[int] | None]] = field(default_factory=dict)
    """Time of the query and the user's group ids, by user. The ids of an unknown user are None."""

    def find_nonmember_groups(self, users: Iterable[str], groups: Iterable[str]) -> dict[str, list[str]]:
        """Return, by user, the `groups` to which the user is known not to belong.

        Unknown users and groups are omitted.
        """
        known = {name: group_id for name in groups if (group_id := get_group_id(name)) is not None}
        until_s = self.clock() + MAX_QUERY_TIME_S
        wanted = set(users)
        for user in self._ids.keys() - wanted:
            del self._ids[user]
        found = {}
        for user in sorted(wanted, key=lambda user: (self._ids.get(user, (0.0, None))[0], user)):
            theirs = self._get_cached_group_ids(user, until_s)
            if theirs is not None:
                found[user] = [name for name, group_id in known.items() if group_id not in theirs]
        return found

    def _get_cached_group_ids(self, user: str, until_s: float) -> frozenset[int] | None:
        now_s = self.clock()
        asked_s, theirs = self._ids.get(user, (None, None))
        if asked_s is not None and (now_s - asked_s < CACHE_S or now_s >= until_s):
            return theirs
        if now_s >= until_s:
            return None
        theirs = get_group_ids_of_user(user)
        self._ids[user] = (now_s, theirs)
        return theirs


def get_group_id(group: str) -> int | None:
    """Return a group's id, or None if the group does not exist on the host."""
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, OSError):
        return None


def get_group_ids_of_user(user: str) -> frozenset[int] | None:
    """Return a user's group ids, or None if the user does not exist on the host."""
    try:
        return frozenset(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
    except (KeyError, OSError):
        return None


def query_admin_level(user: str) -> Record:
    """Return the user's AdminLevel, and whether the accounting database answers.

    The level is None if neither the database nor the controller answers. The controller keeps the levels in memory, so
    it can answer while the database is down.
    """
    output = run_and_read_output(
        ["sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}", "format=adminlevel"]
    )
    if output is not None:
        words = output.split()
        return {"admin_level": words[0] if words else "", "accounting_answers": True}
    kept = run_and_read_output(["scontrol", "show", "assoc_mgr", f"users={user}", "flags=users"]) or ""
    levels = [word.partition("=")[2] for word in kept.split() if word.startswith("AdminLevel=")]
    return {"admin_level": levels[0] if levels else None, "accounting_answers": False}
