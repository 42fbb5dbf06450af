"""Decide whether a job's dependencies are met, from the jobs in the same reading.

Slurm checks the dependencies of held jobs once a minute and clears those that are met. A job held by the bridge would
have to wait that long. The bridge therefore checks dependencies itself, by the rules of Slurm's `test_job_dependency`
(slurmctld's job_scheduler.c). Slurm has the final say: it starts a released job only after its own check.

A record lists dependencies by kind, as jobs with the state of the dependency: {"afterok": ["14_7(unfulfilled)"]}. It
also states whether `singleton` is among them, or None if the library lost that fact. If a dependency has no other kind,
it is `singleton`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states

UNMET = PendingReason(PendingCode.DEPENDENCY)

_ON = re.compile(r"(?P<job>\d{1,10})(_(?P<task>\d{1,10}|\*))?(\+(?P<minutes>\d{1,9}))?(\((?P<state>\w+)\))?")
_PENDING = frozenset({slurm_states.PENDING, "CONFIGURING"})


def _has_begun(record: Record, minutes: int, now_s: int) -> bool:
    return record["state"] not in _PENDING and (not minutes or now_s - (record["start_time"] or now_s) >= minutes * 60)


def _has_ended(record: Record, minutes: int, now_s: int) -> bool:
    return record["state"] in slurm_states.ENDED


def _has_completed(record: Record, minutes: int, now_s: int) -> bool:
    return bool(record["state"] == slurm_states.COMPLETED)


def _has_failed(record: Record, minutes: int, now_s: int) -> bool:
    return record["state"] in slurm_states.ENDED and record["state"] != slurm_states.COMPLETED


KINDS: Mapping[str, Callable[[Record, int, int], bool]] = {
    "after": _has_begun,
    "afterany": _has_ended,
    "afterok": _has_completed,
    "afternotok": _has_failed,
    "aftercorr": _has_completed,
}
"""By kind of dependency, a function that returns whether another job satisfies it."""


@dataclass(slots=True)
class JobDependencyTargets:
    """The jobs of one reading that other jobs may depend on."""

    jobs: Sequence[Record]
    now_s: int
    _by_number: dict[int, list[Record]] = field(default_factory=dict)
    """By job or array number, the record of the job or the records of all tasks of the array."""
    _by_task: dict[int, dict[int | None, list[Record]]] = field(default_factory=dict)
    """By array and task number, the records of tasks; under None, the records in which several tasks wait."""
    _told: dict[tuple[str, object], bool] = field(default_factory=dict)
    """Results by kind and target, because many jobs may depend on the same jobs."""
    _single: dict[tuple[object, object], tuple[bool, float]] = field(default_factory=dict)
    """By user and job name, whether a matching job has nodes, and the lowest number of the waiting ones."""

    def are_dependencies_met(self, record: Record) -> bool:
        """Return whether all dependencies of a pending record are met."""
        wanted = record["dependencies"]
        if wanted is None:
            return True
        if not isinstance(wanted, dict):
            return False
        tests = [self._known(kind, on, record) for kind in wanted for on in _each(wanted[kind])]
        any_will_do, single = wanted.get("satisfy") == "any", wanted.get("singleton")
        if single or not tests or (single is None and not any_will_do):  # singleton may be lost; Slurm checks it too
            tests.append(self._is_single(record))
        return any(tests) if any_will_do else all(tests)

    def _known(self, kind: str, on: object, record: Record) -> bool:
        """Return the result of `_is`, cached for a reading if it does not depend on the job."""
        if kind == "aftercorr":
            return self._is(kind, on, record)
        key = (kind, str(on))
        if key not in self._told:
            self._told[key] = self._is(kind, on, record)
        return self._told[key]

    def _is(self, kind: str, on: object, record: Record) -> bool:
        """Return whether one dependency is met; False if it is unknown or failed."""
        read, happened = _ON.fullmatch(str(on)), KINDS.get(kind)
        if read is None or happened is None or read["state"] == "failed":
            return False
        task = read["task"]
        if kind == "aftercorr" and record["array_id"]:
            task = str(record["array_task_id"] or 0)
        minutes = int(read["minutes"] or 0)
        whole = task in (None, "*")
        found = self._records(int(read["job"]), None if whole else int(task))
        if not found:
            return True  # Slurm ignores dependencies on jobs that it has forgotten
        if kind == "afternotok" and whole:
            ended = all(_has_ended(each, minutes, self.now_s) for each in found)
            return ended and any(_has_failed(each, minutes, self.now_s) for each in found)
        return all(happened(each, minutes, self.now_s) for each in found)

    def _records(self, number: int, task: int | None) -> list[Record]:
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
                tasks.setdefault(None if _waits_with_others(job) else slurm_job_ids.job_id_of_record(job), []).append(
                    job
                )
            self._by_task[number] = tasks
        tasks = self._by_task[number]
        return tasks.get(slurm_job_ids.make_task_id(number, task)) or tasks.get(None, [])

    def _is_single(self, record: Record) -> bool:
        """Return whether no other job with the same name and user occupies nodes or waits ahead of this job."""
        if not self._single:
            for job in self.jobs:
                key = (job["user_id"], job["name"])
                has_nodes, first = self._single.get(key, (False, math.inf))
                waits = job["id"] if job["state"] == slurm_states.PENDING else math.inf
                self._single[key] = (has_nodes or job["state"] in slurm_states.OCCUPYING, min(first, waits))
        has_nodes, first = self._single.get((record["user_id"], record["name"]), (False, math.inf))
        return not has_nodes and first >= record["id"]


def _each(on: object) -> Iterable[object]:
    return on if isinstance(on, list) else ()


def _waits_with_others(job: Record) -> bool:
    return bool(job["state"] == slurm_states.PENDING and job["array_tasks_waiting"])
