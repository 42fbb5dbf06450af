"""Write boosts: points in a job resource that PBS's `job_sort_formula` adds.

PBS's scheduler starts the jobs in open queues in the order of that formula. The bridge only writes a number on waiting
jobs. It neither starts nor holds jobs.

In OpenPBS 23.06.06:

- All users can see a resource with `flag=r`. Only managers and operators can request or alter it.
- `qalter -l` alters waiting jobs, and whole arrays even if some subjobs are running. It rejects a running job.
- PBS's scheduler evaluates the formula in each cycle. A change of points does not trigger a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cpsched_bridge.adapters.pbs.pbs_records import Record
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.job_sort_formula import POINTS, FormulaNotComputable, JobSortFormula
from cpsched_bridge.adapters.pbs.translation.pbs_ranking import find_sort_formula, get_boost, may_have_points, rank_jobs
from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE
from cpsched_bridge.errors import BackendError, BackendTimeout
from cpsched_bridge.ports import Outcome, PriorityBoost, QueueRank

MAX_BATCH = 50
"""Maximum number of jobs in one command, which gives all of them the same points."""
NO_FORMULA = JobSortFormula.parse("0")


@dataclass(slots=True)
class PbsBoosts:
    """Reader and writer of jobs' points; `advise` takes at most `telling_s` seconds."""

    reader: PbsStateReader
    tells: PbsCommands
    queues: tuple[str, ...]
    telling_s: float
    command_s: float

    def ranks(self) -> list[QueueRank]:
        """Return the ranks of jobs; all ranks are fixed if the formula ignores points."""
        formula = self._formula()
        jobs, queues = self.reader.read_jobs_and_queues()
        found = rank_jobs(jobs, queues, self.queues, formula or NO_FORMULA)
        return found if formula is not None else [replace(each, fixed=True) for each in found]

    def _formula(self) -> JobSortFormula | None:
        try:
            found = JobSortFormula.parse(find_sort_formula(self.reader.read_server(), self.reader.read_schedulers()))
        except (FormulaNotComputable, *UNREADABLE):
            return None
        return found if found.has_unit_boost_weight else None

    def advise(self, advice: Sequence[PriorityBoost]) -> list[Outcome]:
        """Check each job, then change its points; return the outcomes.

        Jobs with equal points share a command.
        """
        jobs, _ = self.reader.read_jobs_and_queues()
        names = {number: name for name, number in pbs_job_ids.job_numbers(jobs).items()}
        outcomes: dict[int, Outcome] = {}
        told: dict[int, list[str]] = {}
        for each in advice:
            name = names.get(each.id, "")
            settled = _settled(each, name, jobs)
            if settled is not None:
                outcomes[each.id] = settled
            else:
                told.setdefault(each.points, []).append(name)
        numbers = {name: number for number, name in names.items()}
        results = self._tell_all(told)
        outcomes |= {numbers[name]: replace(result, job_id=numbers[name]) for name, result in results.items()}
        return [outcomes[each.id] for each in advice]

    def _tell_all(self, told: Mapping[int, Sequence[str]]) -> dict[str, Outcome]:
        """Return the outcome for each job by name; stop at the first timeout."""
        until_s = time.monotonic() + self.telling_s
        found: dict[str, Outcome] = {}
        lost = ""
        pieces = [
            (points, names[at : at + MAX_BATCH])
            for points, names in told.items()
            for at in range(0, len(names), MAX_BATCH)
        ]
        while pieces:
            points, names = pieces.pop(0)
            left_s = until_s - time.monotonic()
            if lost or left_s <= 0:
                words = f"not sent: {lost or 'the time for advice is over'}"
                found |= dict.fromkeys(names, Outcome(0, "refused", words, "not_sent"))
                continue
            try:
                self.tells.set_boost_points(names, POINTS, points, min(self.command_s, max(1.0, left_s)))
            except BackendTimeout as error:
                lost = str(error)
                found |= dict.fromkeys(names, Outcome(0, "unknown", lost))
            except BackendError as error:
                if len(names) > 1:  # PBS rejected at least one job, so each is sent alone
                    pieces = [(points, [name]) for name in names] + pieces
                else:
                    found[names[0]] = Outcome(0, "refused", str(error))
            else:
                found |= dict.fromkeys(names, Outcome(0, "done"))
        return found


def _settled(advice: PriorityBoost, name: str, jobs: Mapping[str, Record]) -> Outcome | None:
    """Return the outcome of a boost that needs no command, or None if it needs one."""
    record = jobs.get(name)
    if record is None or not may_have_points(record):
        if not advice.points:
            return Outcome(advice.id, "done", "does not wait")
        return Outcome(advice.id, "refused", "does not wait any more")
    try:
        now = get_boost(record)
    except UNREADABLE:
        return Outcome(advice.id, "refused", f"its {POINTS} cannot be read")
    if now == advice.points:
        return Outcome(advice.id, "done")
    if now not in (0, *advice.instead_of):
        return Outcome(advice.id, "refused", f"has {POINTS} of somebody else's: {now}")
    return None
