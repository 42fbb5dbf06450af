"""Which users are in none of some Unix groups, as this host knows them; asked rarely, and never for long."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

KEPT_S = 60.0
"""How long an answer is good for; Slurm itself keeps its own for ten minutes."""
BUDGET_S = 0.5
"""What one reading may spend on asking. Users who are not asked for in it are not known in it."""


@dataclass(slots=True)
class UnixGroups:
    """Remembers what the host has answered."""

    clock: Callable[[], float] = time.monotonic
    _ids: dict[str, tuple[float, frozenset[int] | None]] = field(default_factory=dict)
    """By user: when asked, and the ids of the groups that the user is in; None where the host knows no such user."""

    def outside(self, users: Iterable[str], groups: Iterable[str]) -> dict[str, list[str]]:
        """By user, those of `groups` that the user is known not to be in. Who or what is not known is left out."""
        known = {name: group_id for name in groups if (group_id := id_of(name)) is not None}
        until_s = self.clock() + BUDGET_S
        wanted = set(users)
        for user in self._ids.keys() - wanted:
            del self._ids[user]
        found = {}
        for user in sorted(wanted, key=lambda user: (self._ids.get(user, (0.0, None))[0], user)):
            theirs = self._groups_of(user, until_s)
            if theirs is not None:
                found[user] = [name for name, group_id in known.items() if group_id not in theirs]
        return found

    def _groups_of(self, user: str, until_s: float) -> frozenset[int] | None:
        now_s = self.clock()
        asked_s, theirs = self._ids.get(user, (None, None))
        if asked_s is not None and (now_s - asked_s < KEPT_S or now_s >= until_s):
            return theirs
        if now_s >= until_s:
            return None
        theirs = groups_of(user)
        self._ids[user] = (now_s, theirs)
        return theirs


def id_of(group: str) -> int | None:
    """The number of a group; None where the host knows no such group."""
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, OSError):
        return None


def groups_of(user: str) -> frozenset[int] | None:
    """The numbers of the groups that a user is in; None where the host knows no such user."""
    try:
        return frozenset(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
    except (KeyError, OSError):
        return None
