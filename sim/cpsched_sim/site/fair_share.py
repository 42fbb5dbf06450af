"""Fair-share factors: Slurm's Fair Tree and classic formula, and decaying usage.

An association is a user in an account, or an account in another account. Index 0 is the root. `usage` is each user's
decayed usage. An account's usage is the sum over its descendants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.site.accounts import AssociationTree

FloatArray = npt.NDArray[np.float64]

SLURM_LN2 = 0.693
"""Slurm's value for the natural logarithm of 2."""


@dataclass(frozen=True)
class FairShareTree:
    """Shares, with one entry per association. Parents precede their children.

    - `parents`: index of the parent, or -1 for the root, which is entry 0.
    - `shares`: a number relative to the siblings' numbers; None means the parent's share (`fairshare=parent`).
    - `users`: whether the entry is a user.
    """

    parents: tuple[int, ...]
    shares: tuple[int | None, ...]
    users: tuple[bool, ...]

    @classmethod
    def from_accounts(cls, accounts: AssociationTree) -> FairShareTree:
        """Return the shares of all associations."""
        rows = accounts.associations
        return cls(
            tuple(row.parent for row in rows), tuple(row.shares for row in rows), tuple(bool(row.user) for row in rows)
        )

    @cached_property
    def effective_parents(self) -> tuple[int, ...]:
        """Return the ancestor from whose share each entry receives a part.

        Skip accounts that use their parent's share.
        """
        found = [-1]
        for parent in self.parents[1:]:
            while parent > 0 and self.shares[parent] is None:
                parent = self.parents[parent]
            found.append(parent)
        return tuple(found)

    @cached_property
    def effective_children(self) -> tuple[tuple[int, ...], ...]:
        """Return the entries that divide each parent's share.

        Omit accounts that use their parent's share.
        """
        found: list[list[int]] = [[] for _ in self.parents]
        for at, giver in enumerate(self.effective_parents):
            if giver >= 0 and (self.users[at] or self.shares[at] is not None):
                found[giver].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def shares_among_siblings(self) -> FloatArray:
        """Return each share as a fraction of the sum over all siblings."""
        levels = [sum(self.shares[child] or 0 for child in below) for below in self.effective_children]
        part = np.ones(len(self.parents))
        for at, giver in enumerate(self.effective_parents[1:], start=1):
            part[at] = (self.shares[at] or 0) / levels[giver] if levels[giver] else 0.0
        return part

    @cached_property
    def normalized_shares(self) -> FloatArray:
        """Return each share as a fraction of the whole machine (`NormShares`)."""
        part = self.shares_among_siblings.copy()
        for at, giver in enumerate(self.effective_parents[1:], start=1):
            part[at] = part[giver] * (1.0 if self.shares[at] is None else part[at])
        return part

    def sum_subtrees(self, usage: npt.ArrayLike) -> FloatArray:
        """Return each entry's usage, including that of its descendants."""
        total = np.array(usage, dtype=np.float64)
        for at in range(len(self.parents) - 1, 0, -1):
            total[self.parents[at]] += total[at]
        return total


def fair_tree_factors(tree: FairShareTree, usage: npt.ArrayLike) -> FloatArray:
    """Return each user's Fair Tree factor. Accounts have factor 0.

    The first user has factor 1.

    Siblings are ranked by the ratio of their share to their usage (`LevelFS`), and an account's users precede those of
    any sibling ranked below it. Users with equal ratios share a rank. The children of accounts with equal ratios are
    not merged. Slurm's documentation says that they are, but Slurm up to 26.05 does not merge them.
    """
    used = tree.sum_subtrees(usage)
    people = sum(tree.users)
    factor = np.zeros(len(tree.parents))
    rank = untied = people

    def level_fair_share(at: int) -> float:
        if tree.shares[at] is None:
            return np.inf
        giver = tree.effective_parents[at]
        use = used[at] / used[giver] if used[giver] else 0.0
        share = float(tree.shares_among_siblings[at])
        return 0.0 if share == 0 else np.inf if use == 0 else share / use

    def rank_subtree(giver: int, tied_before: bool) -> None:
        nonlocal rank, untied
        levels = {at: level_fair_share(at) for at in tree.effective_children[giver]}
        previous: float | None = None
        for place, at in enumerate(sorted(levels, key=lambda at: (-levels[at], not tree.users[at]))):
            tied = tied_before if place == 0 and tied_before else levels[at] == previous
            if tree.users[at]:
                rank = rank if tied else untied
                factor[at] = rank / people
                untied -= 1
            else:
                rank_subtree(at, tied)
            previous = levels[at]

    if people:
        rank_subtree(0, False)
    return factor


def classic_fair_share_factors(
    tree: FairShareTree, usage: npt.ArrayLike, dampening: float = 1.0, depth_oblivious: bool = False
) -> FloatArray:
    """Return the factors of `PriorityFlags=NO_FAIR_TREE` for all entries.

    A factor is 2^-(effective usage / share / dampening).

    With `depth_oblivious`, the effective usage is that of `PriorityFlags=DEPTH_OBLIVIOUS`.
    """
    require(dampening > 0, "dampening", dampening, "must be positive")
    used = tree.sum_subtrees(usage)
    part = used / used[0] if used[0] else np.zeros_like(used)
    effective = part.copy()
    for at, giver in enumerate(tree.effective_parents[1:], start=1):
        if giver == 0:
            continue
        if tree.shares[at] is None:
            effective[at] = effective[giver]
        elif depth_oblivious:
            effective[at] = _depth_oblivious_usage(tree, at, part, effective)
        else:
            level = tree.shares_among_siblings[at]
            siblings = any(tree.shares[child] for child in tree.effective_children[giver])
            effective[at] = part[at] + (effective[giver] - part[at]) * level if siblings else effective[giver]
    share = tree.normalized_shares
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.exp2(-(effective / share) / dampening)
    return np.where(share > 0, factor, 0.0)


def _depth_oblivious_usage(tree: FairShareTree, at: int, part: FloatArray, effective: FloatArray) -> float:
    """Return the effective usage for `DEPTH_OBLIVIOUS`.

    It is the parent's ratio of usage to share, scaled by the entry's own ratio.
    """
    giver, share = tree.effective_parents[at], tree.normalized_shares
    if not (share[at] and share[giver] and effective[giver] and part[at]):
        return float(part[at])
    of_parent = effective[giver] / share[giver]
    siblings = sum(part[child] for child in tree.effective_children[giver] if tree.shares[child] is not None)
    own = part[at] / share[at] / (siblings / share[giver])
    bent = 1.0 if np.log(of_parent) * np.log(own) >= 0 else 1.0 / (1.0 + (5.0 * np.log(of_parent)) ** 2)
    return float(of_parent * own**bent * share[at])


def decay_per_second(half_life_s: float) -> float:
    """Return the factor by which usage decays per second.

    It is 1 without decay (`PriorityDecayHalfLife=0`).
    """
    return 1.0 - SLURM_LN2 / half_life_s if half_life_s else 1.0


@dataclass(slots=True)
class DecayedUsage:
    """Usage by association that decays with a half-life and grows at constant rates.

    Values are in resource seconds. A rate is the amount of resources in use. Slurm sums at every tick, whereas this
    class evaluates the closed form for any time.
    """

    used: FloatArray
    rate: FloatArray
    at_s: float
    half_life_s: float

    @classmethod
    def of(
        cls, entries: int, half_life_s: float, at_s: float = 0.0, used: Sequence[float] | None = None
    ) -> DecayedUsage:
        """Return the associations' usage at `at_s`, with no running jobs."""
        start = np.zeros(entries) if used is None else np.array(used, dtype=np.float64)
        return cls(start, np.zeros(entries), at_s, half_life_s)

    def advance(self, to_s: float) -> None:
        """Compute the usage at `to_s`, unless it is in the past."""
        seconds = to_s - self.at_s
        if seconds <= 0:
            return
        keep = decay_per_second(self.half_life_s)
        left = keep**seconds
        gained = seconds if keep == 1.0 else (left - 1.0) / np.log(keep)
        self.used = self.used * left + self.rate * gained
        self.at_s = to_s

    def add_rate(self, entry: int, rate: float, since_s: float) -> None:
        """Increase an association's rate from `since_s`, which may be in the past."""
        self.advance(since_s)
        keep, seconds = decay_per_second(self.half_life_s), self.at_s - since_s
        self.rate[entry] += rate
        self.used[entry] += rate * (seconds if keep == 1.0 else (keep**seconds - 1.0) / np.log(keep))
