"""Run one case. Its input is plain values, and its result is reproducible."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cpsched.errors import CpschedError
from cpsched.metrics import ScheduleData
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.case_store import installed_version
from cpsched_sim.file_io import file_sha256
from cpsched_sim.simulation import ReplaySpec, Simulation, replay_workload
from cpsched_sim.simulation_metrics import DecisionTimes, metric_values
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.tuning.tuning_windows import DAY_S, TuningWindow, cut_tuning_window
from cpsched_sim.workloads.eurora_generator import generate_eurora_records
from cpsched_sim.workloads.lublin_generator import generate_lublin_records
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy, load

ENDED, FAILED, TIME_LIMITED = "ended", "failed", "did not end"
RECORDED_LIBRARIES = ("cpsched", "numpy", "numba", "ortools")
MAX_JOBS = 4_000_000
MIB = 1 << 20
CHANGED_FILE_RULE = "has changed since the study was read"


class StudyCaseOutcome(NamedTuple):
    """The outcome of a case.

    `result` is the same in every run. `made` describes this run.
    """

    result: dict[str, Any]
    made: dict[str, Any]
    jobs: bytes | None = None
    """The schedule as NumPy columns, if requested."""


def execute_case(task: Mapping[str, Any], progress: Callable[..., None] | None = None) -> StudyCaseOutcome:
    """Replay a case. An error becomes a result with outcome `failed` and the reason."""
    began_s = time.perf_counter()
    try:
        result, made, jobs = _replay_case(task, progress)
    except Exception as error:
        result, made, jobs = _result_of_exception(error, task.get("memory_mib")), {}, None
    return StudyCaseOutcome(
        result, {**_describe_run_environment(), "wall_s": time.perf_counter() - began_s, **made}, jobs
    )


def _result_of_exception(error: Exception, memory_mib: int | None) -> dict[str, Any]:
    """Return the result of a case that raised `error`.

    With a memory limit, `MemoryError` means that it was exceeded.
    """
    if MemoryError in (type(error), type(error.__cause__)):
        return (
            limit_exceeded_result(memory_mib=memory_mib)
            if memory_mib is not None
            else failed_result("not enough memory")
        )
    on_purpose = isinstance(error, CpschedError)
    return failed_result(str(error) if on_purpose else f"{type(error).__name__}: {error}")


def failed_result(why: str) -> dict[str, Any]:
    """Return the result of a case that failed."""
    return {"outcome": FAILED, "why": why}


def limit_exceeded_result(minutes: float | None = None, memory_mib: int | None = None) -> dict[str, Any]:
    """Return the result of a case that exceeded its time or memory limit."""
    bound = f"{minutes:g} min" if minutes is not None else f"{memory_mib:,} MiB"
    limit = {"minutes": minutes} if minutes is not None else {"memory_mib": memory_mib}
    return {"outcome": TIME_LIMITED, "why": f"did not end in {bound}", "limit": limit}


def bound_memory(memory_mib: int | None) -> None:
    """Limit the private memory of this process; None means no limit."""
    if memory_mib is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = memory_mib * MIB if hard == resource.RLIM_INFINITY else min(memory_mib * MIB, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _replay_case(
    task: Mapping[str, Any], progress: Callable[..., None] | None
) -> tuple[dict[str, Any], dict[str, Any], bytes | None]:
    workload = _load_workload(task)
    if isinstance(part := task["window"], Mapping):
        workload, part = _take_job_sequence(workload, **part), None
    window = _cut_case_window(workload, part)
    spec = PolicySpec(**task["spec"])
    found = replay_workload(window.workload if window is not None else workload, ReplaySpec(spec), progress)
    measures = _measures_without_margins(found.measures, window)
    values = {**metric_values(measures, found.more), "longest_wait_s": float(measures.wait_s.max())}
    schedule = found.schedule
    result = {
        "outcome": ENDED, "why": "",
        "figures": {name: int(value) if isinstance(value, int) else float(value) for name, value in values.items()},
        "left_waiting": found.never_started_count, "rounds": schedule.rounds, "violations": len(schedule.violations),
        "paths": dict(sorted(schedule.paths.items())), "schedule_sha256": _schedule_digest(found),
    }  # fmt: skip
    made = {"cpu_s": schedule.cpu_s, "decision": asdict(DecisionTimes.of(schedule.dispatch_s))}
    return result, made, _pack_schedule(found) if task.get("jobs") else None


def _load_workload(task: Mapping[str, Any]) -> Workload:
    trace, system = task["trace"], task["system"]
    if "generate" in trace:
        workload = _generate_workload(trace, system)
    else:
        path = Path(trace["file"])
        if file_sha256(path) != task["sha256"]:
            raise InputError(f"{path.name}: {CHANGED_FILE_RULE}")
        options = {name: trace[name] for name in ("lenient", "max_jobs", "format")}
        workload = load(path, system, **options)
    if task["load"] != 1.0:
        workload = scale_load(workload, task["load"])
    if task["policy"] is None:
        return workload
    site = load_site_policy_file(Path(task["policy"]))
    if site.sha256 != task["policy_sha256"]:
        raise InputError(f"{task['policy']}: {CHANGED_FILE_RULE}")
    return apply_site_policy(workload, site)


def _generate_workload(trace: Mapping[str, Any], system: str | None) -> Workload:
    if trace["generate"] == "lublin":
        processors = trace["processors"]
        target = System(load_system(system or "pool"), {"MaxProcs": str(processors)})
        records = generate_lublin_records(trace["max_jobs"], trace["seed"], processors, trace["load"])
    else:
        target = System(load_system(system or "eurora"))
        records = generate_eurora_records(trace["days"], trace["seed"], trace["load"])[: trace["max_jobs"]]
    jobs = [record.to_trace_job(target.request(record.ask)) for record in records]
    return Workload(trace["generate"], target.name, target.cluster, jobs, {}, ())


def scale_load(workload: Workload, load: float) -> Workload:
    """Return the workload with the times between arrivals divided by `load`."""
    first_s = workload.jobs[0].job.submit_s

    def scale_submit_time(item: TraceJob) -> TraceJob:
        submit_s = first_s + round((item.job.submit_s - first_s) / load)
        return replace(item, job=replace(item.job, submit_s=submit_s), recorded_start_s=None)

    return replace(workload, jobs=[scale_submit_time(item) for item in workload.jobs])


def _take_job_sequence(workload: Workload, first: int, jobs: int) -> Workload:
    """Return `jobs` jobs from a workload, starting at index `first`."""
    found = workload.jobs[first : first + jobs]
    if len(found) < jobs:
        raise InputError(f"{workload.name}: has {len(workload.jobs)} jobs, but {jobs} are needed from job {first}")
    return replace(workload, jobs=found)


def _cut_case_window(workload: Workload, part: tuple[float, float] | None) -> TuningWindow | None:
    if part is None:
        return None
    submits = [item.job.submit_s for item in workload.jobs]
    from_s = submits[0] + round(part[0] * DAY_S)
    window = cut_tuning_window(workload, submits, from_s, from_s + round(part[1] * DAY_S), MAX_JOBS)
    if not window.judged:
        days = f"days {part[0]:g} to {part[0] + part[1]:g}"
        raise InputError(f"{workload.name}: no job arrives in {days}, counted from its first job")
    return window


def _measures_without_margins(measures: ScheduleData, window: TuningWindow | None) -> ScheduleData:
    """Return the data of the jobs that arrive within the window, without its margins."""
    if window is None:
        return measures
    inside = (measures.submit_s >= window.from_s) & (measures.submit_s < window.to_s)
    if not inside.any():
        raise InputError("no job in the window ever started")
    jobs = [job for job, is_in in zip(measures.jobs, inside.tolist(), strict=True) if is_in]
    return ScheduleData(
        measures.submit_s[inside], measures.start_s[inside], measures.end_s[inside], measures.processors[inside],
        machine=measures.machine, jobs=jobs,
    )  # fmt: skip


def _schedule_digest(found: Simulation) -> str:
    """Return a digest of all start and end times, in order of arrival."""
    schedule = found.schedule
    return hashlib.sha256(schedule.start_s.tobytes() + schedule.end_s.tobytes()).hexdigest()


def _pack_schedule(found: Simulation) -> bytes:
    jobs, schedule = [item.job for item in found.workload.jobs], found.schedule
    file = io.BytesIO()
    np.savez_compressed(
        file, job=np.array([job.id for job in jobs]), submit_s=np.array([job.submit_s for job in jobs]),
        start_s=schedule.start_s, end_s=schedule.end_s, processors=schedule.processors,
    )  # fmt: skip
    return file.getvalue()


def _describe_run_environment() -> dict[str, Any]:
    """Describe the machine and the versions that produced a result."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: installed_version(name) for name in RECORDED_LIBRARIES},
        },
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "load": round(os.getloadavg()[0], 1),
    }
