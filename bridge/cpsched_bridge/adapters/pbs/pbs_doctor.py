"""Check whether a PBS cluster meets the bridge's requirements, and suggest fixes."""

from __future__ import annotations

import fnmatch
import getpass
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cpsched.errors import escape_controls, join_abbreviated
from cpsched_bridge.adapters.pbs.pbs_objects import (
    BOOST_RESOURCE,
    LEASE_RESOURCE,
    PbsJob,
    PbsRecords,
    PbsServer,
    PbsVnode,
    select_managed_queues,
)
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import WAITING_STATES
from cpsched_bridge.adapters.pbs.translation.pbs_limits import PbsRunLimitTable
from cpsched_bridge.adapters.pbs.translation.pbs_ranking import FormulaNotComputable, JobSortFormula, find_sort_formula
from cpsched_bridge.ports import ReadinessCheck, UnusableObject

MAX_LISTED_ITEMS = 5


@dataclass(frozen=True, slots=True)
class PbsDoctorContext:
    """The managed queues, and the account and hosts of the bridge."""

    queues: tuple[str, ...]
    left_queue: str
    user: str
    hosts: tuple[str, ...]

    @classmethod
    def for_this_process(cls, queues: tuple[str, ...], left_queue: str) -> PbsDoctorContext:
        """Return the context for this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = ""
        return cls(queues, left_queue, user, tuple({socket.gethostname(), socket.getfqdn()}))


def run_pbs_doctor_checks(seen: PbsRecords, context: PbsDoctorContext) -> list[ReadinessCheck]:
    """Return all checks on a reading."""
    return [
        ReadinessCheck("server", True, f"PBS {seen.server.version or '(unknown version)'} responds"),
        *_check_queues(seen, context),
        _check_unmanaged_queue(seen, context),
        _check_scheduling_enabled(seen.server),
        _check_privilege(seen.server, context),
        _check_lease_resource(seen),
        _check_boost_resource(seen),
        _check_formula(seen),
        _check_formula_threshold(seen),
        _check_stale_vnodes(seen),
        _check_job_history(seen.server),
        _check_limits(seen, context),
    ]


def _check_queues(seen: PbsRecords, context: PbsDoctorContext) -> Iterable[ReadinessCheck]:
    if not context.queues:
        yield ReadinessCheck(
            "queues", False, "options.queues is empty", "list the queues whose jobs the bridge should start"
        )
    there = select_managed_queues(seen.queues, context.queues)
    for name in context.queues:
        if name not in there:
            remedy = f"qmgr -c 'create queue {escape_controls(name)} queue_type=execution, enabled=true'"
            yield ReadinessCheck(f"queue {name}", False, "there is no execution queue with this name", remedy)
            continue
        open_to = "PBS's scheduler" if there[name].is_started else "the bridge"
        enabled = there[name].is_enabled
        yield ReadinessCheck(
            f"queue {name}",
            enabled,
            f"{'accepts' if enabled else 'rejects'} jobs; {open_to} starts them",
            f"qmgr -c 'set queue {name} enabled=true'",
            required=False,
        )


def _check_unmanaged_queue(seen: PbsRecords, context: PbsDoctorContext) -> ReadinessCheck:
    """Check `left_queue`, which receives the jobs that the bridge does not manage.

    The queue may be closed, because a bridge that died while starting jobs did not reopen it.
    """
    name = context.left_queue
    remedy = "set options.left_queue to a started execution queue that is not in options.queues"
    if not name:
        return ReadinessCheck("left_queue", False, "options.left_queue is not set", remedy, mode="control")
    if name in context.queues:
        return ReadinessCheck("left_queue", False, f"{name} is also in options.queues", remedy, mode="control")
    queue = select_managed_queues(seen.queues, [name]).get(name)
    if queue is None:
        return ReadinessCheck("left_queue", False, f"there is no execution queue {name}", remedy, mode="control")
    ok = queue.is_enabled
    remedy = f"qmgr -c 'set queue {name} enabled=true, started=true'"
    closed = "" if queue.is_started else "; the bridge opens it when it takes control"
    found = f"{name} {'accepts' if ok else 'rejects'} jobs{closed}"
    return ReadinessCheck("left_queue", ok, found, remedy, mode="control")


def _check_scheduling_enabled(server: PbsServer) -> ReadinessCheck:
    ok = server.is_scheduling
    remedy = "qmgr -c 'set server scheduling=true': PBS must start the jobs that the bridge does not start"
    return ReadinessCheck("scheduling", ok, f"PBS's own scheduler is {'on' if ok else 'off'}", remedy)


def _check_privilege(server: PbsServer, context: PbsDoctorContext) -> ReadinessCheck:
    """Check that this account is a manager, or root on the server's host."""
    entries = [each.strip() for value in server.managers for each in value.split(",") if each.strip()]
    mine = [f"{context.user}@{host}" for host in context.hosts]
    listed = any(fnmatch.fnmatchcase(me, entry if "@" in entry else f"{entry}@*") for entry in entries for me in mine)
    here = server.host in set(context.hosts) | {h.partition(".")[0] for h in context.hosts}
    ok = listed or (context.user == "root" and (here or not entries))
    remedy = f"qmgr -c 'set server managers += {context.user}@{context.hosts[0]}'"
    found = f"{context.user} is {'' if ok else 'not '}a manager of PBS"
    return ReadinessCheck("privilege", ok, found, remedy)


def _check_lease_resource(seen: PbsRecords) -> ReadinessCheck:
    kind = seen.resources.get(LEASE_RESOURCE)
    ok = kind is not None and kind.type == "string" and ("r" in kind.flags or "i" in kind.flags)
    remedy = f"qmgr -c 'create resource {LEASE_RESOURCE} type=string,flag=r'"
    found = (
        f"resource {LEASE_RESOURCE} exists, so the bridge can use a lease"
        if ok
        else f"there is no resource {LEASE_RESOURCE} that only managers can set"
    )
    return ReadinessCheck("lease", ok, found, remedy, required=False)


def _check_boost_resource(seen: PbsRecords) -> ReadinessCheck:
    """Check the resource that stores boosts.

    With a different flag, users could boost their own jobs.
    """
    kind = seen.resources.get(BOOST_RESOURCE)
    ok = kind is not None and kind.type == "long" and set(kind.flags) in ({"r"}, {"i"})
    remedy = f"qmgr -c 'create resource {BOOST_RESOURCE} type=long,flag=r'"
    if kind is not None:
        remedy = f"qmgr -c 'set resource {BOOST_RESOURCE} type=long,flag=r'"
    found = (
        "only managers and operators can set boosts"
        if ok
        else f"there is no resource {BOOST_RESOURCE} with type long and flag r"
    )
    return ReadinessCheck("boosts", ok, found, remedy, mode="advise")


def _check_formula(seen: PbsRecords) -> ReadinessCheck:
    """Check that PBS's formula adds the boosts to the site's own terms."""
    where = "as root on the server's host: qmgr -c 'set server job_sort_formula"
    try:
        text = find_sort_formula(seen.server, seen.schedulers)
        if not text:
            return ReadinessCheck(
                "formula", False, "no job_sort_formula is set", f'{where} = "{BOOST_RESOURCE}"\'', mode="advise"
            )
        formula = JobSortFormula.parse(text)
    except FormulaNotComputable as error:
        remedy = "use one formula for all schedulers, with only arithmetic, eligible_time, priorities and requests"
        return ReadinessCheck(
            "formula", False, f"job_sort_formula {escape_controls(str(error))}", remedy, mode="advise"
        )
    ok = formula.has_unit_boost_weight
    remedy = f'{where} = "({escape_controls(text)}) + {BOOST_RESOURCE}"\''
    found = f"job_sort_formula {'adds' if ok else 'does not add'} {BOOST_RESOURCE} exactly once, with weight 1"
    return ReadinessCheck("formula", ok, found, remedy, mode="advise")


def _check_formula_threshold(seen: PbsRecords) -> ReadinessCheck:
    """Check that the formula has no threshold. Boosts would lift jobs above it."""
    having = [name for name, each in sorted(seen.schedulers.items()) if each.threshold]
    remedy = f"qmgr -c 'unset sched {having[0] if having else 'default'} job_sort_formula_threshold'"
    subject = f"scheduler {escape_controls(having[0])} has" if having else "no scheduler has"
    found = f"{subject} a job_sort_formula_threshold"
    return ReadinessCheck("threshold", not having, found, remedy, mode="advise")


def _check_stale_vnodes(seen: PbsRecords) -> ReadinessCheck:
    """Report vnodes that PBS still reserves for a job that is not running.

    This happens if PBS rejects one of the later chunks of a `qrun`. PBS shows the job on the vnode, even if the job is
    deleted, until the job runs there or the server restarts (OpenPBS 23.06.06).
    """
    taken = {name: each for name, each in sorted(seen.vnodes.items()) if "job-exclusive" in each.states}
    stale = [name for name, each in taken.items() if not _is_vnode_used(each, seen.jobs)]
    text = f"{', '.join(escape_controls(name) for name in stale[:5])}: job-exclusive without a running job"
    remedy = "restart PBS's server at a convenient time; until then, no job can use these vnodes"
    return ReadinessCheck(
        "vnodes",
        not stale,
        text if stale else "no vnode is reserved for a job that is not running",
        remedy,
        required=False,
    )


def _is_vnode_used(vnode: PbsVnode, jobs: Mapping[str, PbsJob]) -> bool:
    """Return whether a vnode has a started job or a reservation."""
    has_started = any(jobs[name].state not in WAITING_STATES for name in vnode.jobs if name in jobs)
    return has_started or "resv-exclusive" in vnode.states


def check_for_unusable_objects(unusable: Sequence[UnusableObject]) -> ReadinessCheck:
    """Report the PBS objects that have an unusable field."""
    found = (
        f"ignored: {join_abbreviated(unusable, MAX_LISTED_ITEMS, '; ')}" if unusable else "all PBS objects can be read"
    )
    return ReadinessCheck("objects", not unusable, found, "correct these values with qmgr", required=False)


def _check_limits(seen: PbsRecords, context: PbsDoctorContext) -> ReadinessCheck:
    """Report limits that the bridge does not keep. `qrun` ignores all limits."""
    queues = select_managed_queues(seen.queues, context.queues)
    table = PbsRunLimitTable.from_attributes(seen.server.limits, {name: each.limits for name, each in queues.items()})
    found = join_abbreviated(table.notes, MAX_LISTED_ITEMS, "; ") if table.notes else "all limits of PBS are kept"
    remedy = "leave the queue to PBS, or express the limit with max_run or max_run_res"
    return ReadinessCheck("limits", not table.notes, found, remedy, required=False)


def _check_job_history(server: PbsServer) -> ReadinessCheck:
    ok = server.keeps_history
    remedy = "qmgr -c 'set server job_history_enable=true'"
    found = (
        "PBS keeps records of ended jobs"
        if ok
        else "PBS keeps no records of ended jobs, so the bridge cannot learn from them at startup"
    )
    return ReadinessCheck("history", ok, found, remedy, required=False)
