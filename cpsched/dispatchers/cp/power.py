"""Power as one more pool, with a cap: what the scheduling model of HCP's ancestor had (cp19 section 2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cpsched.errors import InvalidValue, require
from cpsched.kernels.cp.state import Facts, Relaxation
from cpsched.model import IntArray, Snapshot


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `cap_w` watts for all jobs together; a job draws `watts` for each amount of a resource it asks for."""

    cap_w: int
    watts: Mapping[str, int]

    @classmethod
    def of(cls, cap_w: int | None, watts: str) -> Cap | None:
        """From settings: `watts` is text such as "cores=8,gpus=120". None without a cap; raises `InvalidValue`."""
        if cap_w is None:
            require(not watts, "watts", watts, "needs power_cap_w")
            return None
        require(cap_w > 0, "power_cap_w", cap_w, "must be positive")
        found: dict[str, int] = {}
        for entry in filter(None, (entry.strip() for entry in watts.split(","))):
            name, _, value = entry.partition("=")
            if not value.isdecimal():
                raise InvalidValue("watts", entry, "must be RESOURCE=WATTS, a whole number")
            found[name.strip()] = int(value)
        require(bool(found), "watts", watts, "must say what a job draws: RESOURCE=WATTS, ...")
        return cls(cap_w, found)

    def draws(self, snapshot: Snapshot, slots: IntArray) -> IntArray:
        """Watts of each job, int64[J]. Raises `InvalidValue` for a resource that the cluster has not."""
        known = snapshot.cluster.resources
        for name in self.watts:
            require(name in known, "watts", name, f"must be one of {', '.join(known)}")
        each = np.array([self.watts.get(name, 0) for name in known], np.int64)
        found: IntArray = (snapshot.table.per_unit[slots] @ each) * snapshot.table.units[slots]
        return found

    def left_w(self, snapshot: Snapshot) -> int:
        """What the running jobs leave."""
        return self.cap_w - int(self.draws(snapshot, snapshot.running).sum())


@dataclass(frozen=True, slots=True)
class Power:
    """The cap in one round: what the jobs of a model draw, and the running ones."""

    cap_w: int
    jobs_w: IntArray
    running_w: IntArray
    """In the order of `Facts.running`."""


def with_power(found: Relaxation, facts: Facts, power: Power) -> Relaxation:
    """The pools and power, where that can run short. Of what runs beyond the cap nothing is taken back."""
    end_s = facts.end_s[facts.running]
    held = np.array([power.running_w[end_s > moment].sum() for moment in found.moment_s.tolist()], np.int64)
    capacity = np.maximum(0, power.cap_w - held)
    if power.jobs_w.sum() <= capacity[0]:
        return found
    return Relaxation(
        found.moment_s,
        np.ascontiguousarray(np.column_stack((found.capacity, capacity))),
        np.ascontiguousarray(np.column_stack((found.demand, power.jobs_w))),
    )
