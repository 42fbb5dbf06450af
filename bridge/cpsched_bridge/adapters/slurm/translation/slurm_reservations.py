"""Translate Slurm's reservations: which resources they hold, and for which jobs.

The rules come from Slurm's source, 22.05 to 26.05 (`_foreach_job_test_no_resv`, `job_test_resv`,
`_valid_job_access_resv`):

- A reservation holds whole nodes, or some cores of nodes and possibly generic resources. Other jobs cannot use these
  resources. A job that requires whole nodes gets no node that is partly reserved.
- MAINT, ALL_NODES and PART_NODES block starts regardless of the number of cores. A reservation with one of these flags
  therefore closes its nodes. A reservation with unreadable flags also closes its nodes.
- IGNORE_JOBS, OVERLAP, REPLACE and STATIC determine how a reservation's nodes were chosen. FLEX determines which other
  resources the reservation's own jobs may use. These flags do not affect other jobs. For TIME_FLOAT, Slurm shows the
  moving start time.
- A MAGNETIC reservation accepts jobs that do not name it. A job that Slurm could start there now is left to Slurm.
- A reservation may hold licenses. Current ones are not among the free licenses in the site's policy. A job that would
  still run when a future one begins must leave its licenses free (`job_test_lic_resv`).

One reservation holds no resources: its comment is the controlling bridge's lease. Operators can create and change
reservations, but users cannot. The reservation starts in the far future, so it blocks no job. slurmctld rejects a
second reservation with the same name, so only one of two bridges can create it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.feasibility import units_fitting_by_row
from cpsched.model import BoolArray, IntArray, Request
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob, parse_task_ranges
from cpsched.slurm_text.objects import SlurmNode, SlurmReservation
from cpsched_bridge.adapters.shared.lease_text import parse_lease
from cpsched_bridge.adapters.shared.node_table import CORES, MEMORY
from cpsched_bridge.adapters.slurm.translation.gres_counts import find_typed_gres, gres_from_tres
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable, count_cpus_per_core
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import (
    PartitionAccessContext,
    list_account_and_ancestors,
)
from cpsched_bridge.ports import Lease

EXCLUSIVE_RESERVATION_FLAGS = frozenset({"MAINT", "ALL_NODES", "PART_NODES"})
"""Flags of reservations that keep other jobs from starting on their nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class ReservedNodes:
    """A reservation of nodes or parts of nodes from `start_s` to `end_s`."""

    name: str
    members: BoolArray
    """Mask of the nodes that are reserved as a whole."""
    start_s: int
    end_s: int
    held: IntArray | None = None
    """Amounts reserved on other nodes, int64[N, R], or None if there are none."""
    reservation: SlurmReservation = field(default_factory=SlurmReservation)

    @property
    def partly_reserved_nodes(self) -> BoolArray:
        """Return a mask of the nodes that are reserved in part."""
        if self.held is None:
            return np.zeros_like(self.members)
        found: BoolArray = np.any(self.held, axis=1)
        return found

    @property
    def is_magnetic(self) -> bool:
        """Return whether the reservation is magnetic or its flags are unreadable."""
        return self.reservation.flags is None or "MAGNETIC" in self.reservation.flags


def translate_reservations(
    reservations: Iterable[SlurmReservation], nodes: Sequence[SlurmNode], machine: SlurmNodeTable, now_s: int
) -> tuple[ReservedNodes, ...]:
    """Return the current and future reservations of nodes, sorted by start time.

    A reservation with unreadable nodes excludes no node, because Slurm itself rejects starts on its nodes.
    """
    core_cpus = {node.name: count_cpus_per_core(node) for node in nodes}
    found = [
        _translate_reservation(r, core_cpus, machine) for r in reservations if r.nodes and (r.end_time or 0) > now_s
    ]
    return tuple(sorted(found, key=lambda r: (r.start_s, r.name)))


def _translate_reservation(
    reservation: SlurmReservation, core_cpus: Mapping[str, int], machine: SlurmNodeTable
) -> ReservedNodes:
    nodes = machine.mask_of_names(expand_hostlist_or_empty(reservation.nodes))
    held = np.zeros_like(machine.capacity)
    flags = reservation.flags
    if flags is not None and EXCLUSIVE_RESERVATION_FLAGS.isdisjoint(flags):
        for name, ids in (reservation.cpu_ids_by_node or {}).items():
            if name in machine.index:
                held[machine.index[name], CORES] = _count_listed_cores(ids) * core_cpus.get(name, 1)
    parts = nodes & (held[:, CORES] > 0)
    _add_reserved_memory_and_gres(held, parts, reservation.tres or {}, machine)
    held[~parts] = 0
    start_s, end_s = reservation.start_time or 0, reservation.end_time or 0
    kept = np.minimum(held, machine.capacity) if parts.any() else None
    return ReservedNodes(reservation.name, nodes & ~parts, start_s, end_s, kept, reservation)


def _count_listed_cores(ids: str) -> int:
    """Return the number of cores in a list such as "0-3,8".

    An unreadable list counts as 0, which closes the node.
    """
    try:
        return sum(map(len, parse_task_ranges(ids)))
    except ValueError:
        return 0


def _add_reserved_memory_and_gres(
    held: IntArray, parts: BoolArray, tres: Mapping[str, int], machine: SlurmNodeTable
) -> None:
    """Add memory and generic resources, of which Slurm reports only the totals.

    Memory is distributed in proportion to the cores. Slurm does not show which nodes provide the generic resources.
    Each node is therefore assumed to provide all of them, of any type if no type is named.
    """
    cores = held[parts, CORES]
    if machine.rules.counts_memory and cores.sum():
        held[parts, MEMORY] = -(-tres.get("mem", 0) * cores // cores.sum())
    amounts = gres_from_tres(tres)
    typed = find_typed_gres(amounts)
    for column, resource in enumerate(machine.resources[MEMORY + 1 :], MEMORY + 1):
        general = resource.partition(":")[0]
        held[parts, column] = amounts.get(resource, 0 if general in typed else amounts.get(general, 0))


def find_reservations_before_job_end(
    reservations: Iterable[ReservedNodes], now_s: int, end_s: int
) -> tuple[ReservedNodes, ...]:
    """Return the reservations of whole nodes that begin before a job ends.

    A job that starts now would end at `end_s`.
    """
    return tuple(r for r in reservations if now_s < r.start_s < end_s and r.members.any())


def fits_empty_reservation(
    reservation: ReservedNodes, request: Request, partition: BoolArray, machine: SlurmNodeTable
) -> bool:
    """Return whether a request fits into an empty reservation."""
    inside = np.zeros_like(machine.capacity) if reservation.held is None else reservation.held.copy()
    inside[reservation.members] = machine.capacity[reservation.members]
    inside[:, MEMORY] = machine.capacity[:, MEMORY]  # reservations do not divide a node's memory
    found = units_fitting_by_row(request, inside)
    found[~((reservation.members | reservation.partly_reserved_nodes) & partition)] = 0
    return bool(found.sum() >= request.units)


def may_use_reservation(reservation: SlurmReservation, job: SlurmJob, access_context: PartitionAccessContext) -> bool:
    """Return whether a job may use a reservation, or True if this is unknown."""
    if "TIME_FLOAT" in (reservation.flags or ()):
        return False
    if job.user_id == 0:
        return True
    user = str(job.user_name or job.user_id)
    line = list_account_and_ancestors(job.account, access_context)
    return (
        _is_any_name_admitted(reservation.users, [user])
        and _may_be_in_groups(reservation.groups, user, access_context)
        and (
            _is_any_name_admitted(reservation.accounts, line)
            or (access_context.above is None and _is_allow_list(reservation.accounts))
        )
        and _is_any_name_admitted(reservation.qos, [job.qos])
        and _is_any_name_admitted(reservation.allowed_partitions, [job.partition])
    )


def _is_allow_list(names: Sequence[str] | None) -> bool:
    return not any(name.startswith("-") for name in names or ())


def _is_any_name_admitted(names: Sequence[str] | None, mine: Iterable[str]) -> bool:
    """Return whether a list of names admits any of `mine`.

    The list contains either allowed names, or denied names with a leading "-". An empty list admits all names.
    """
    if not names:
        return True
    listed = {name.removeprefix("-").lower() for name in names}
    return listed.isdisjoint(name.lower() for name in mine) != _is_allow_list(names)


def _may_be_in_groups(groups: Sequence[str] | None, user: str, access_context: PartitionAccessContext) -> bool:
    """Return whether the user may be in one of the groups, or True if there are none."""
    return not groups or not set(groups) <= set(access_context.outside.get(user, ()))


@dataclass(frozen=True, slots=True, eq=False)
class FutureCoreReservation:
    """A future reservation of parts of nodes, and the capacity that it leaves."""

    name: str
    start_s: int
    parts: BoolArray
    room: IntArray
    """Capacity minus the amounts reserved and the amounts of jobs still running at the start, int64[N, R]."""

    def begins_during_job(self, now_s: int, walltime_s: int) -> bool:
        """Return whether a job started now would still run when the reservation begins."""
        return now_s < self.start_s < now_s + walltime_s

    def mask_blocked_nodes(self, request: Request) -> BoolArray:
        """Return a mask of the nodes on which no unit of a request would fit, bool[N].

        A job that requires whole nodes cannot use any node of the reservation.
        """
        if request.exclusive:
            return self.parts
        none: BoolArray = units_fitting_by_row(request, self.room) == 0
        return self.parts & none


LEASE_RESERVATION_NAME = "cpsched-bridge"
"""Name of the lease reservation."""
UNKNOWN_OWNER = "the author of the comment on reservation"


def lease_from_reservations(reservations: Iterable[SlurmReservation]) -> Lease | None:
    """Return the lease in a reading's reservations, or None if there is none.

    An unreadable comment yields a lease with an unknown owner.
    """
    comment = find_lease_comment(reservations)
    return None if comment is None else parse_lease(comment, f"{UNKNOWN_OWNER} {LEASE_RESERVATION_NAME}")


def find_lease_comment(reservations: Iterable[SlurmReservation]) -> str | None:
    """Return the lease reservation's comment, or None if there is no such reservation."""
    return next((each.comment or "" for each in reservations if each.name == LEASE_RESERVATION_NAME), None)


def without_lease_reservation(reservations: Sequence[SlurmReservation]) -> list[SlurmReservation]:
    """Return the reservations other than the lease reservation."""
    return [each for each in reservations if each.name != LEASE_RESERVATION_NAME]
