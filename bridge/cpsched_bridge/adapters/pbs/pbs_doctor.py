"""Check whether a PBS cluster meets the bridge's requirements, and state how to meet them."""

from __future__ import annotations

import fnmatch
import getpass
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cpsched.errors import abbreviate, escape_controls
from cpsched_bridge.adapters.pbs.pbs_records import PbsRecords, Record, get_text, to_texts
from cpsched_bridge.adapters.pbs.translation.job_sort_formula import POINTS, FormulaNotComputable, JobSortFormula
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import WAITING
from cpsched_bridge.adapters.pbs.translation.pbs_observation import CLAIM
from cpsched_bridge.adapters.pbs.translation.pbs_queues import is_true, select_managed_queues
from cpsched_bridge.adapters.pbs.translation.pbs_ranking import THRESHOLD, find_sort_formula
from cpsched_bridge.adapters.pbs.translation.vnodes import parse_states
from cpsched_bridge.ports import Check, UnusableObject

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class PbsCheckContext:
    """The managed queues, and the account that runs the bridge."""

    queues: tuple[str, ...]
    left_queue: str
    user: str
    hosts: tuple[str, ...]

    @classmethod
    def for_this_process(cls, queues: tuple[str, ...], left_queue: str) -> PbsCheckContext:
        """Return the context for this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = ""
        return cls(queues, left_queue, user, tuple({socket.gethostname(), socket.getfqdn()}))


def run_checks(seen: PbsRecords, around: PbsCheckContext) -> list[Check]:
    """Return all checks of a reading."""
    return [
        Check("server", True, f"PBS {get_text(seen.server, 'pbs_version') or 'of unknown version'} answers"),
        *_queues(seen, around),
        _left_queue(seen, around),
        _scheduling(seen.server),
        _privilege(seen.server, around),
        _claim(seen),
        _points(seen),
        _formula(seen),
        _threshold(seen),
        _stale_vnodes(seen),
        _history(seen.server),
    ]


def _queues(seen: PbsRecords, around: PbsCheckContext) -> Iterable[Check]:
    if not around.queues:
        yield Check("queues", False, "options.queues is empty", "name the queues whose jobs the bridge is to start")
    there = select_managed_queues(seen.queues, around.queues)
    for name in around.queues:
        if name not in there:
            mend = f"qmgr -c 'create queue {escape_controls(name)} queue_type=execution, enabled=true'"
            yield Check(f"queue {name}", False, "no execution queue of that name", mend)
            continue
        open_to = "PBS's scheduler" if there[name].started else "the bridge"
        enabled = is_true(there[name].record, "enabled")
        yield Check(
            f"queue {name}",
            enabled,
            f"{'takes' if enabled else 'takes no'} jobs, which {open_to} may start",
            f"qmgr -c 'set queue {name} enabled=true'",
            required=False,
        )


def _left_queue(seen: PbsRecords, around: PbsCheckContext) -> Check:
    """Check the queue for jobs that the bridge does not start.

    It may be closed, because a bridge that died during starts did not reopen it.
    """
    name = around.left_queue
    mend = "name a started execution queue, which the bridge does not manage, in options.left_queue"
    if not name:
        return Check("left_queue", False, "not named", mend, mode="control")
    if name in around.queues:
        return Check("left_queue", False, f"{name} is one of options.queues", mend, mode="control")
    queue = select_managed_queues(seen.queues, [name]).get(name)
    if queue is None:
        return Check("left_queue", False, f"there is no execution queue {name}", mend, mode="control")
    ok = is_true(queue.record, "enabled")
    mend = f"qmgr -c 'set queue {name} enabled=true, started=true'"
    closed = "" if queue.started else ", and is opened when the bridge takes control"
    found = f"{name} takes {'' if ok else 'no '}jobs{closed}"
    return Check("left_queue", ok, found, mend, mode="control")


def _scheduling(server: Record) -> Check:
    ok = is_true(server, "scheduling")
    mend = "qmgr -c 'set server scheduling=true': PBS must start the jobs that the bridge does not start"
    return Check("scheduling", ok, f"PBS's own scheduler is {'on' if ok else 'off'}", mend)


def _privilege(server: Record, around: PbsCheckContext) -> Check:
    """Check that this account is a manager, or root on the server's host."""
    entries = [each.strip() for value in to_texts(server.get("managers")) for each in value.split(",") if each.strip()]
    mine = [f"{around.user}@{host}" for host in around.hosts]
    listed = any(fnmatch.fnmatchcase(me, entry if "@" in entry else f"{entry}@*") for entry in entries for me in mine)
    here = get_text(server, "server_host") in set(around.hosts) | {h.partition(".")[0] for h in around.hosts}
    ok = listed or (around.user == "root" and (here or not entries))
    mend = f"qmgr -c 'set server managers += {around.user}@{around.hosts[0]}'"
    found = f"{around.user} is {'' if ok else 'not '}a manager of PBS"
    return Check("privilege", ok, found, mend)


def _claim(seen: PbsRecords) -> Check:
    kind = seen.resources.get(CLAIM)
    ok = kind is not None and kind.type == "string" and ("r" in kind.flags or "i" in kind.flags)
    mend = f"qmgr -c 'create resource {CLAIM} type=string,flag=r'"
    found = "the lease is possible" if ok else f"there is no resource {CLAIM} that users cannot request"
    return Check("claim", ok, found, mend, required=False)


def _points(seen: PbsRecords) -> Check:
    """Check the resource for boosts; with another flag, users could boost jobs."""
    kind = seen.resources.get(POINTS)
    ok = kind is not None and kind.type == "long" and set(kind.flags) in ({"r"}, {"i"})
    mend = f"qmgr -c 'create resource {POINTS} type=long,flag=r'"
    if kind is not None:
        mend = f"qmgr -c 'set resource {POINTS} type=long,flag=r'"
    found = "only managers write boosts" if ok else f"there is no resource {POINTS} of type long and flag r"
    return Check("points", ok, found, mend, mode="advise")


def _formula(seen: PbsRecords) -> Check:
    """Check that PBS sorts by the boosts in addition to the site's formula."""
    where = "as root on the server's host: qmgr -c 'set server job_sort_formula"
    try:
        text = find_sort_formula(seen.server, seen.schedulers)
        if not text:
            return Check("formula", False, "no job_sort_formula is set", f'{where} = "{POINTS}"\'', mode="advise")
        formula = JobSortFormula.parse(text)
    except (FormulaNotComputable, ValueError) as error:
        mend = "a formula of arithmetic, eligible_time, priorities and requests, the same for all schedulers"
        return Check("formula", False, f"job_sort_formula {escape_controls(str(error))}", mend, mode="advise")
    ok = formula.has_unit_boost_weight
    mend = f'{where} = "({escape_controls(text)}) + {POINTS}"\''
    found = f"job_sort_formula {'adds' if ok else 'does not add'} {POINTS} once, as it stands"
    return Check("formula", ok, found, mend, mode="advise")


def _threshold(seen: PbsRecords) -> Check:
    """Check that the site sets no threshold; boosts would allow jobs below it to run."""
    having = [name for name, each in sorted(seen.schedulers.items()) if get_text(each, THRESHOLD)]
    mend = f"qmgr -c 'unset sched {having[0] if having else 'default'} {THRESHOLD}'"
    found = f"scheduler {escape_controls(having[0])} has a {THRESHOLD}" if having else f"no scheduler has a {THRESHOLD}"
    return Check("threshold", not having, found, mend, mode="advise")


def _stale_vnodes(seen: PbsRecords) -> Check:
    """Report vnodes that PBS keeps reserved for a job that is not running.

    The cause is a `qrun` with several chunks that PBS rejected at a later chunk. PBS shows the job on the vnode, even
    if the job is deleted, until the job runs there or the server restarts (OpenPBS 23.06.06).
    """
    taken = {name: each for name, each in sorted(seen.vnodes.items()) if "job-exclusive" in parse_states(each)}
    stale = [name for name, each in taken.items() if not _is_used(each, seen.jobs)]
    words = f"{', '.join(escape_controls(name) for name in stale[:5])}: job-exclusive, and without a job that runs"
    mend = "restart PBS's server when it suits: until then no job gets these vnodes"
    return Check(
        "vnodes", not stale, words if stale else "none is kept for a job that is not there", mend, required=False
    )


def _is_used(vnode: Record, jobs: Mapping[str, Record]) -> bool:
    """Return whether a vnode has a started job or a reservation."""
    there = [jobs[name] for name in to_texts(vnode.get("jobs")) if name in jobs]
    begun = any(str(job.get("job_state")) not in WAITING for job in there)
    return begun or "resv-exclusive" in parse_states(vnode)


def usable_objects(unusable: Sequence[UnusableObject]) -> Check:
    """Report PBS objects with an unusable field."""
    found = f"left out: {abbreviate(unusable, MOST_NAMED, '; ')}" if unusable else "all that PBS shows can be read"
    return Check("objects", not unusable, found, "correct these values with qmgr", required=False)


def _history(server: Record) -> Check:
    ok = is_true(server, "job_history_enable")
    mend = "qmgr -c 'set server job_history_enable=true'"
    found = (
        "ended jobs are remembered" if ok else "ended jobs are forgotten: the bridge cannot learn from them at start"
    )
    return Check("history", ok, found, mend, required=False)
