"""Set boosts: points in a job resource that PBS's `job_sort_formula` adds.

PBS's scheduler starts the jobs in open queues in the order given by that formula. The bridge only changes the points of
waiting jobs. It neither starts nor holds jobs.

In OpenPBS 23.06.06:

- All users can see a resource with `flag=r`. Only managers and operators can request or alter it.
- `qalter -l` alters waiting jobs, and whole arrays even if some subjobs are running. It rejects a running job.
- PBS's scheduler evaluates the formula in each cycle. A change in points does not trigger a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cpsched_bridge.adapters.pbs.pbs_objects import BOOST_RESOURCE, PbsJob
from cpsched_bridge.adapters.pbs.translation import pbs_jobs
from cpsched_bridge.adapters.pbs.translation.pbs_ranking import (
    FormulaNotComputable,
    JobSortFormula,
    can_be_boosted,
    find_sort_formula,
    rank_jobs,
)
from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.errors import BackendError, BackendTimeout
from cpsched_bridge.ports import BoostCommand, Outcome, QueueRank

MAX_BATCH = 50
"""Maximum number of jobs in one command, which sets the same points for all of them."""
NO_FORMULA = JobSortFormula.parse("0")


@dataclass(slots=True)
class PbsBoostAccess:
    """Read and write access to jobs' points.

    `advise` takes at most `time_limit_s` seconds.
    """

    reader: PbsStateReader
    commands: PbsCommands
    queues: tuple[str, ...]
    time_limit_s: float
    command_s: float

    def read_ranks(self) -> list[QueueRank]:
        """Return the ranks of waiting jobs.

        All ranks are fixed if the formula does not add points.
        """
        formula = self._read_usable_formula()
        jobs, queues = self.reader.read_jobs_and_queues()
        found = rank_jobs(jobs, queues, self.queues, formula or NO_FORMULA)
        return found if formula is not None else [replace(each, fixed=True) for each in found]

    def _read_usable_formula(self) -> JobSortFormula | None:
        try:
            found = JobSortFormula.parse(find_sort_formula(self.reader.read_server(), self.reader.read_schedulers()))
        except FormulaNotComputable:
            return None
        return found if found.has_unit_boost_weight else None

    def set_job_boosts(self, commands: Sequence[BoostCommand]) -> list[Outcome]:
        """Check each job, then change its points. Return the outcomes.

        Jobs with equal points share a command.
        """
        jobs, _ = self.reader.read_jobs_and_queues()
        names = {number: name for name, number in pbs_jobs.assign_job_numbers(jobs).items()}
        outcomes: dict[int, Outcome] = {}
        names_by_points: dict[int, list[str]] = {}
        for each in commands:
            name = names.get(each.id, "")
            settled = _find_outcome_without_command(each, jobs.get(name))
            if settled is not None:
                outcomes[each.id] = settled
            else:
                names_by_points.setdefault(each.points, []).append(name)
        numbers = {name: number for number, name in names.items()}
        results = self._send_boost_points(names_by_points)
        outcomes |= {numbers[name]: replace(result, job_id=numbers[name]) for name, result in results.items()}
        return [outcomes[each.id] for each in commands]

    def _send_boost_points(self, names_by_points: Mapping[int, Sequence[str]]) -> dict[str, Outcome]:
        """Send points until a command times out. Return all jobs' outcomes by job name."""
        until_s = time.monotonic() + self.time_limit_s
        found: dict[str, Outcome] = {}
        lost = ""
        pieces = [
            (points, names[at : at + MAX_BATCH])
            for points, names in names_by_points.items()
            for at in range(0, len(names), MAX_BATCH)
        ]
        while pieces:
            points, names = pieces.pop(0)
            left_s = until_s - time.monotonic()
            if lost or left_s <= 0:
                text = f"not sent: {lost or 'the time limit for boosts was reached'}"
                found |= dict.fromkeys(names, Outcome.not_sent(0, text))
                continue
            try:
                self.commands.set_boost_points(names, BOOST_RESOURCE, points, min(self.command_s, max(1.0, left_s)))
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


def _find_outcome_without_command(command: BoostCommand, job: PbsJob | None) -> Outcome | None:
    """Return the outcome of a boost that needs no command, or None."""
    if job is None or not can_be_boosted(job):
        if not command.points:
            return Outcome(command.id, "done", "is not pending")
        return Outcome(command.id, "refused", "is no longer pending")
    if job.boost is None:
        return Outcome(command.id, "refused", f"its {BOOST_RESOURCE} cannot be read")
    if job.boost == command.points:
        return Outcome(command.id, "done")
    if job.boost not in (0, *command.expected_points):
        return Outcome(command.id, "refused", f"{BOOST_RESOURCE}={job.boost} was set by another actor")
    return None
