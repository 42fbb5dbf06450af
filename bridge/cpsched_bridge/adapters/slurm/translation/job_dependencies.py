"""Decide from the jobs in a reading whether a job's dependencies are met.

Slurm checks the dependencies of held jobs once a minute and clears those that are met. A job held by the bridge would
have to wait that long. The bridge therefore checks dependencies itself, by the rules of Slurm's `test_job_dependency`
(slurmctld's job_scheduler.c). Slurm makes the final decision: it starts a released job only after its own check.

A record lists dependencies by kind, as job ids with the state of each dependency: {"afterok": ["14_7(unfulfilled)"]}.
Its `singleton` entry states whether this dependency exists, and is None if the library does not report it. If the
record lists no job ids, the only dependency is `singleton`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.errors import join_abbreviated
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states

UNMET_DEPENDENCY_REASON = PendingReason(PendingCode.DEPENDENCY)
_MAX_LISTED_JOBS = 8

_DEPENDENCY = re.compile(r"(?P<job>\d{1,10})(_(?P<task>\d{1,10}|\*))?(\+(?P<minutes>\d{1,9}))?(\((?P<state>\w+)\))?")
_WAITING = frozenset({slurm_states.PENDING, *slurm_states.WAITING_FOR_SLURM})
_NOT_BEGUN = _WAITING | {slurm_states.CONFIGURING}


def _has_begun(record: Record, minutes: int, now_s: int) -> bool:
    return record["state"] not in _NOT_BEGUN and (
        not minutes or now_s - (record["start_time"] or now_s) >= minutes * 60
    )


def _has_ended(record: Record, minutes: int, now_s: int) -> bool:
    state = record["state"]
    return state in slurm_states.ENDED_STATES or state not in slurm_states.LISTED_STATES


def _has_completed(record: Record, minutes: int, now_s: int) -> bool:
    return bool(record["state"] == slurm_states.COMPLETED)


def _has_failed(record: Record, minutes: int, now_s: int) -> bool:
    return record["state"] in slurm_states.ENDED_STATES and record["state"] != slurm_states.COMPLETED


SATISFACTION_RULES: Mapping[str, Callable[[Record, int, int], bool]] = {
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

    jobs: Sequence[Record]
    now_s: int
    _by_number: dict[int, list[Record]] = field(default_factory=dict)
    """Records by job or array number: the job's record, or all records of the array's tasks."""
    _by_task: dict[int, dict[int | None, list[Record]]] = field(default_factory=dict)
    """Records by array number and the task's job number. A record of several waiting tasks has the key None."""
    _cached_results: dict[tuple[str, object], bool] = field(default_factory=dict)
    """Results by kind and target, because many jobs may depend on the same jobs."""
    _single: dict[tuple[object, object], tuple[bool, float]] = field(default_factory=dict)
    """Whether a job has nodes, and the lowest number of a pending job, by user and job name."""

    def are_dependencies_met(self, record: Record) -> bool:
        """Return whether all dependencies of a pending record are met."""
        wanted = record["dependencies"]
        if wanted is None:
            return True
        if not isinstance(wanted, dict):
            return False
        tests = [
            self._is_dependency_met_cached(kind, on, record) for kind in wanted for on in _to_target_list(wanted[kind])
        ]
        any_will_do, single = wanted.get("satisfy") == "any", wanted.get("singleton")
        if single or not tests or (single is None and not any_will_do):  # None means unknown; Slurm checks it anyway
            tests.append(self._is_singleton_met(record))
        return any(tests) if any_will_do else all(tests)

    def find_unmet_dependency_reason(self, record: Record) -> PendingReason | None:
        """Return why a pending record's dependencies are not met, or None if they are."""
        if self.are_dependencies_met(record):
            return None
        wanted = record["dependencies"] if isinstance(record["dependencies"], dict) else {}
        unmet = [
            str(on)
            for kind in wanted
            for on in _to_target_list(wanted[kind])
            if not self._is_dependency_met_cached(kind, on, record)
        ]
        failed = [on for on in unmet if on.endswith("(failed)")]
        any_will_do = wanted.get("satisfy") == "any"
        named = [on for on in unmet if on not in failed] if any_will_do else failed or unmet
        names = join_abbreviated([on.partition("(")[0] for on in named], _MAX_LISTED_JOBS)
        if failed and not any_will_do:
            return PendingReason(PendingCode.NEVER, (f"it depends on job {names}, which did not end as required",))
        return PendingReason(PendingCode.DEPENDS_ON, (names,)) if named else UNMET_DEPENDENCY_REASON

    def _is_dependency_met_cached(self, kind: str, on: object, record: Record) -> bool:
        """Return the result of `_is_dependency_met`, cached unless it depends on `record`."""
        if kind == "aftercorr":
            return self._is_dependency_met(kind, on, record)
        key = (kind, str(on))
        if key not in self._cached_results:
            self._cached_results[key] = self._is_dependency_met(kind, on, record)
        return self._cached_results[key]

    def _is_dependency_met(self, kind: str, on: object, record: Record) -> bool:
        """Return whether one dependency is met.

        Return False if it has failed or is not understood, and True if its job is no longer listed.
        """
        read, happened = _DEPENDENCY.fullmatch(str(on)), SATISFACTION_RULES.get(kind)
        if read is None or happened is None or read["state"] == "failed":
            return False
        task = read["task"]
        if kind == "aftercorr" and record["array_id"]:
            task = str(record["array_task_id"] or 0)
        minutes = int(read["minutes"] or 0)
        whole = task in (None, "*")
        found = self._find_target_records(int(read["job"]), None if whole else int(task))
        if not found:
            return True  # Slurm ignores dependencies on jobs that it has forgotten
        if kind == "afternotok" and whole:
            ended = all(_has_ended(each, minutes, self.now_s) for each in found)
            return ended and any(_has_failed(each, minutes, self.now_s) for each in found)
        return all(happened(each, minutes, self.now_s) for each in found)

    def _find_target_records(self, number: int, task: int | None) -> list[Record]:
        """Return the records of a job, an array, or one task.

        A waiting task may share its record with other tasks.
        """
        if not self._by_number:
            for job in self.jobs:
                self._by_number.setdefault(job["array_id"] or job["id"], []).append(job)
        found = self._by_number.get(number, [])
        if task is None:
            return found
        if number not in self._by_task:
            tasks: dict[int | None, list[Record]] = {}
            for job in found:
                tasks.setdefault(
                    None if _shares_waiting_record(job) else slurm_job_ids.job_id_of_record(job), []
                ).append(job)
            self._by_task[number] = tasks
        tasks = self._by_task[number]
        return tasks.get(slurm_job_ids.make_task_id(number, task)) or tasks.get(None, [])

    def _is_singleton_met(self, record: Record) -> bool:
        """Return whether no job of this user and name has nodes or waits ahead of it."""
        if not self._single:
            for job in self.jobs:
                key = (job["user_id"], job["name"])
                has_nodes, first = self._single.get(key, (False, math.inf))
                waits = job["id"] if job["state"] in _WAITING else math.inf
                self._single[key] = (has_nodes or job["state"] in slurm_states.OCCUPYING_STATES, min(first, waits))
        has_nodes, first = self._single.get((record["user_id"], record["name"]), (False, math.inf))
        return not has_nodes and first >= record["id"]


def _to_target_list(on: object) -> Iterable[object]:
    return on if isinstance(on, list) else ()


def _shares_waiting_record(job: Record) -> bool:
    return bool(job["state"] == slurm_states.PENDING and job["array_tasks_waiting"])
