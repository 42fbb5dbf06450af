"""Find runaway jobs: jobs that are recorded as unfinished but must have ended.

Slurm's database contains such a job if slurmdbd missed the end of the job. `sacctmgr show runawayjobs` lists them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest
from cpsched_sim.whatif.accounting_history import AccountingHistory, SacctUnfinishedJobReader, UnfinishedJobRecord
from cpsched_sim.whatif.license_limits import peak_amount

HOUR_S, DAY_S = 3_600, 86_400
MAX_WAIT_S = 30 * DAY_S
BEYOND_LIMIT_REASON = "runaway job: running far beyond its time limit"
NODE_REUSED_REASON = "runaway job: running on a node that other jobs have used since"
LONG_WAIT_REASON = "runaway job: waiting far longer than any other job"
RUNAWAY_HINT = "; sacctmgr show runawayjobs lists such jobs and can end them"


def find_runaway_jobs(history: AccountingHistory, system: SystemFile | None) -> dict[int, str]:
    """Return the runaway jobs by number, each with the reason why it must have ended.

    `system` is None if the system was only guessed.
    """
    last_s = history.last_recorded_s
    waits_s = (job.start_s - job.submit_s for job in history.ran if job.start_s is not None)
    most_wait_s = max(MAX_WAIT_S, 2 * max(waits_s, default=0))
    found: dict[int, str] = {}
    for job in history.open:
        if job.left_s is not None:
            continue
        if job.start_s is None:
            if last_s - job.submit_s > most_wait_s:
                found[job.id] = LONG_WAIT_REASON
        elif last_s - job.start_s > job.walltime_s + min(max(job.walltime_s, HOUR_S), DAY_S):
            found[job.id] = BEYOND_LIMIT_REASON
    if system is not None and system.node_types:
        name = system.resources[0]
        most = max(kind.each.get(name, 0) for kind in system.node_types.values())
        run = [job for job in history.open if job.start_s is not None and job.id not in found and job.nodes]
        found |= {
            job.id: NODE_REUSED_REASON for job in run if _is_displaced_by_later_jobs(job, history.ran, name, most)
        }
    advice = RUNAWAY_HINT if isinstance(history.reader, SacctUnfinishedJobReader) else ""
    return {id: why + advice for id, why in found.items()}


def _is_displaced_by_later_jobs(job: UnfinishedJobRecord, ran: Sequence[TraceRecord], name: str, most: int) -> bool:
    """Return whether the job must have ended, because later jobs used its nodes.

    Together with the job, they would exceed the amount `most` on a node.
    """
    nodes, own = set(expand_hostlist_or_empty(job.nodes)), _amount_per_node(job, name)
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for other in ran:
        begin_s, end_s = other.start_s or 0, (other.start_s or 0) + other.run_s
        if begin_s < (job.start_s or 0) or not other.nodes:
            continue
        for node in nodes.intersection(expand_hostlist_or_empty(other.nodes)):
            held = _amount_per_node(other, name)
            changes[node] += [(begin_s, held), (end_s, -held)]
    return any(peak_amount(each) + own > most for each in changes.values())


def _amount_per_node(job: UnfinishedJobRecord | TraceRecord, name: str) -> int:
    """Return the amount of a resource that a job had on each node, rounded down."""
    if not isinstance(job.ask, UnitsRequest):
        return 0
    return dict(job.ask.each).get(name, 0) * job.ask.units // max(1, len(expand_hostlist_or_empty(job.nodes)))
