"""Decide from the jobs in a reading whether a job's dependencies are met.

Slurm checks the dependencies of held jobs once a minute and clears those that are met. A job held by the bridge would
have to wait that long. The bridge therefore checks dependencies itself, by the rules of Slurm's `test_job_dependency`
(slurmctld's job_scheduler.c). Slurm makes the final decision: it starts a released job only after its own check.

If a job lists no job ids among its dependencies, the only dependency is `singleton`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.errors import join_abbreviated
from cpsched.model import PendingCode, PendingReason
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states

UNMET_DEPENDENCY_REASON = PendingReason(PendingCode.DEPENDENCY)
_MAX_LISTED_JOBS = 8

_DEPENDENCY = re.compile(r"(?P<job>\d{1,10})(_(?P<task>\d{1,10}|\*))?(\+(?P<minutes>\d{1,9}))?(\((?P<state>\w+)\))?")
_WAITING = frozenset({slurm_states.PENDING, *slurm_states.WAITING_FOR_SLURM})
_NOT_BEGUN = _WAITING | {slurm_states.CONFIGURING}


def _has_begun(job: SlurmJob, minutes: int, now_s: int) -> bool:
    return job.state not in _NOT_BEGUN and (not minutes or now_s - (job.start_time or now_s) >= minutes * 60)


def _has_ended(job: SlurmJob, minutes: int, now_s: int) -> bool:
    state = job.state
    return state in slurm_states.ENDED_STATES or state not in slurm_states.LISTED_STATES


def _has_completed(job: SlurmJob, minutes: int, now_s: int) -> bool:
    return job.state == slurm_states.COMPLETED


def _has_failed(job: SlurmJob, minutes: int, now_s: int) -> bool:
    return job.state in slurm_states.ENDED_STATES and job.state != slurm_states.COMPLETED


SATISFACTION_RULES: Mapping[str, Callable[[SlurmJob, int, int], bool]] = {
    "after": _has_begun,
    "afterany": _has_ended,
    "afterok": _has_completed,
    "afternotok": _has_failed,
    "aftercorr": _has_completed,
}
"""Functions that return whether another job satisfies a dependency, by kind of dependency."""


@dataclass(slots=True)
class JobDependencyTargets:
    """The jobs in one reading that other jobs may depend on."""

    jobs: Sequence[SlurmJob]
    now_s: int
    _by_number: dict[int, list[SlurmJob]] = field(default_factory=dict)
    """Records by job or array number: the job's record, or all records of the array's tasks."""
    _by_task: dict[int, dict[int | None, list[SlurmJob]]] = field(default_factory=dict)
    """Records by array number and the task's job number. A record of several waiting tasks has the key None."""
    _cached_results: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Results by kind and target, because many jobs may depend on the same jobs."""
    _single: dict[tuple[object, object], tuple[bool, float]] = field(default_factory=dict)
    """Whether a job has nodes, and the lowest number of a pending job, by user and job name."""

    def are_dependencies_met(self, job: SlurmJob) -> bool:
        """Return whether all dependencies of a pending record are met."""
        wanted = job.dependencies
        if wanted is None:
            return True
        tests = [self._is_dependency_met_cached(kind, on, job) for kind, on in wanted.conditions]
        is_unknown = wanted.singleton is None and not wanted.is_any_sufficient  # Slurm checks it anyway
        if wanted.singleton or not tests or is_unknown:
            tests.append(self._is_singleton_met(job))
        return any(tests) if wanted.is_any_sufficient else all(tests)

    def find_unmet_dependency_reason(self, job: SlurmJob) -> PendingReason | None:
        """Return why a pending record's dependencies are not met, or None if they are."""
        wanted = job.dependencies
        if wanted is None or self.are_dependencies_met(job):
            return None
        unmet = [on for kind, on in wanted.conditions if not self._is_dependency_met_cached(kind, on, job)]
        failed = [on for on in unmet if on.endswith("(failed)")]
        any_will_do = wanted.is_any_sufficient
        named = [on for on in unmet if on not in failed] if any_will_do else failed or unmet
        names = join_abbreviated([on.partition("(")[0] for on in named], _MAX_LISTED_JOBS)
        if failed and not any_will_do:
            return PendingReason(PendingCode.NEVER, (f"it depends on job {names}, which did not end as required",))
        return PendingReason(PendingCode.DEPENDS_ON, (names,)) if named else UNMET_DEPENDENCY_REASON

    def _is_dependency_met_cached(self, kind: str, on: str, job: SlurmJob) -> bool:
        """Return the result of `_is_dependency_met`, cached unless it depends on `record`."""
        if kind == "aftercorr":
            return self._is_dependency_met(kind, on, job)
        key = (kind, on)
        if key not in self._cached_results:
            self._cached_results[key] = self._is_dependency_met(kind, on, job)
        return self._cached_results[key]

    def _is_dependency_met(self, kind: str, on: str, job: SlurmJob) -> bool:
        """Return whether one dependency is met.

        Return False if it has failed or is not understood, and True if its job is no longer listed.
        """
        read, happened = _DEPENDENCY.fullmatch(on), SATISFACTION_RULES.get(kind)
        if read is None or happened is None or read["state"] == "failed":
            return False
        task = read["task"]
        if kind == "aftercorr" and job.array_id:
            task = str(job.array_task_id)
        minutes = int(read["minutes"] or 0)
        whole = task in (None, "*")
        found = self._find_target_records(int(read["job"]), None if whole else int(task))
        if not found:
            return True  # Slurm ignores dependencies on jobs that it has forgotten
        if kind == "afternotok" and whole:
            ended = all(_has_ended(each, minutes, self.now_s) for each in found)
            return ended and any(_has_failed(each, minutes, self.now_s) for each in found)
        return all(happened(each, minutes, self.now_s) for each in found)

    def _find_target_records(self, number: int, task: int | None) -> list[SlurmJob]:
        """Return the records of a job, an array, or one task.

        A waiting task may share its record with other tasks.
        """
        if not self._by_number:
            for job in self.jobs:
                self._by_number.setdefault(job.array_id or job.id, []).append(job)
        found = self._by_number.get(number, [])
        if task is None:
            return found
        if number not in self._by_task:
            tasks: dict[int | None, list[SlurmJob]] = {}
            for job in found:
                tasks.setdefault(None if _shares_waiting_record(job) else slurm_job_ids.get_job_id(job), []).append(job)
            self._by_task[number] = tasks
        tasks = self._by_task[number]
        return tasks.get(slurm_job_ids.make_task_id(number, task)) or tasks.get(None, [])

    def _is_singleton_met(self, slurm_job: SlurmJob) -> bool:
        """Return whether no job of this user and name has nodes or waits ahead of it."""
        if not self._single:
            for job in self.jobs:
                key = (job.user_id, job.name)
                has_nodes, first = self._single.get(key, (False, math.inf))
                waits = job.id if job.state in _WAITING else math.inf
                self._single[key] = (has_nodes or job.state in slurm_states.OCCUPYING_STATES, min(first, waits))
        has_nodes, first = self._single.get((slurm_job.user_id, slurm_job.name), (False, math.inf))
        return not has_nodes and first >= slurm_job.id


def _shares_waiting_record(job: SlurmJob) -> bool:
    return bool(job.state == slurm_states.PENDING and job.array_tasks_waiting)
