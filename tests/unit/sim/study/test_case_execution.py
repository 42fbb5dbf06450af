"""One case, from its plain input values to its plain results."""

import hashlib
import io
import json
import os
import resource

import numpy as np
import pytest

from cpsched_sim.study.case_execution import MIB, bound_memory, execute_case, scale_load
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.workloads.workload_loader import load
from tests.unit.sim.study.studies import words, written

DAY_S = 86_400


def line(number, submit_s, run_s=100, walltime_s=1000, user=1, processors=1):
    return f"{number} {submit_s} 0 {run_s} {processors} -1 -1 {processors} {walltime_s} -1 1 {user} 1 -1 1 -1 -1 -1\n"


def decided(folder, lines, processors=1, **axes):
    """The outcome of easy over a trace of these lines."""
    written(folder)
    (folder / "four.swf").write_text(f"; MaxProcs: {processors}\n" + "".join(lines))
    grid = {"traces": ["four"], "dispatchers": ["easy"], **axes}
    (case,) = build_study_cases(words(grids=[grid]), folder).cases
    return execute_case({**case.task, "memory_mib": None})


AT_BOUNDS = [line(at, submit_s) for at, submit_s in enumerate((0, DAY_S - 1, DAY_S, 2 * DAY_S - 1, 2 * DAY_S), 1)]
OF_THREE_HOURS = [line(1, DAY_S - 5000), line(2, DAY_S + 5000)]
FIRST_DAY, SECOND_DAY = [{"days": 1}], [{"days": 1, "from_day": 1}]
SECOND_AND_THIRD = [{"jobs": 2, "first": [1]}]
MARGINS = [
    *(line(3, DAY_S - 5000, 1000), line(4, DAY_S - 4999, processors=2)),
    line(2, DAY_S + 9000),
    *(line(5, 2 * DAY_S + 100, 1000), line(6, 2 * DAY_S + 101, processors=2)),
]
"""A wide job waits in both margins of the second day, and no job waits in it."""


@pytest.mark.parametrize(
    ("lines", "processors", "windows", "jobs", "longest_wait_s"),
    [
        # a window includes its first second, and excludes its last
        (AT_BOUNDS, 1, SECOND_DAY, 2, 99),
        # days are counted from the first job, whatever second of a day that is
        (OF_THREE_HOURS, 1, FIRST_DAY, 2, 0),
        # a sequence starts on an empty cluster: the first job of the trace would let the others wait
        ([line(1, 0, 1000), line(2, 1, 50), line(3, 2, 50), line(4, 3, 50)], 1, SECOND_AND_THIRD, 2, 49),
        # waits in the window count, but not in its margins
        ([line(1, 0), *MARGINS], 2, ["whole"], 6, 999),
        ([line(1, 0), *MARGINS], 2, SECOND_DAY, 1, 0),
        ([line(1, 0), line(2, 0)], 1, ["whole"], 2, 100),
    ],
)
def test_figures_are_those_of_window(tmp_path, lines, processors, windows, jobs, longest_wait_s):
    """Counts stay integers."""
    figures = decided(tmp_path, lines, processors, windows=windows).result["figures"]
    assert (figures["jobs"], figures["longest_wait_s"]) == (jobs, longest_wait_s)
    assert (type(figures["jobs"]), type(figures["longest_wait_s"])) == (int, float)


@pytest.mark.parametrize(
    ("lines", "windows", "why"),
    [
        ([line(1, 0), line(2, 1)], SECOND_AND_THIRD, "has 2 jobs, but 2 are needed from job 1"),
        # a trace of three hours has no second day, though midnight is in it
        (OF_THREE_HOURS, SECOND_DAY, "no job arrives in days 1 to 2, counted from its first job"),
    ],
)
def test_window_without_its_jobs_fails(tmp_path, lines, windows, why):
    assert decided(tmp_path, lines, windows=windows).result == {"outcome": "failed", "why": f"four.swf: {why}"}


@pytest.mark.parametrize(("learned_of", "longest_wait_s"), [(1, 999), (2, 1998)])
def test_predictors_learn_from_jobs_before_window(tmp_path, learned_of, longest_wait_s):
    """The last job is let past the wide one where its user's jobs of the day before were short."""
    before = [line(1, 0, walltime_s=5000, user=learned_of), line(2, 2000, walltime_s=5000, user=learned_of)]
    running, wide = line(3, DAY_S, 1000, user=3), line(4, DAY_S + 1, 1000, user=3, processors=2)
    lines = [*before, running, wide, line(5, DAY_S + 2, walltime_s=5000)]
    found = decided(tmp_path, lines, 2, predictors=["last-two"], windows=[{"days": 1, "from_day": 1}]).result
    assert (found["figures"]["jobs"], found["figures"]["longest_wait_s"]) == (3, longest_wait_s)


def test_jobs_obey_site_policy(tmp_path):
    """Of two jobs that fit beside each other the second waits: its user may run one."""
    (tmp_path / "site.yaml").write_text("accounts: { all: { users: { '1': { limits: { MaxJobs: 1 } } } } }\n")
    lines = [line(1, 0), line(2, 0)]
    assert decided(tmp_path, lines, 2).result["figures"]["longest_wait_s"] == 0
    found = decided(tmp_path, lines, 2, policies=["site.yaml"]).result
    assert found["figures"]["longest_wait_s"] == 100


def test_scaled_trace_has_no_recorded_starts(tmp_path):
    """What was recorded belongs to other arrivals."""
    trace = tmp_path / "recorded.swf"
    trace.write_text("; MaxProcs: 1\n1 0 5 100 1 -1 -1 1 100 -1 1 1 1 -1 1 -1 -1 -1\n")
    workload = load(trace)
    assert [item.recorded_start_s for item in workload.jobs] == [5]
    assert [item.recorded_start_s for item in scale_load(workload, 2.0).jobs] == [None]


def bounds_of_a_child(hard_mib, asked_mib):
    """Soft and hard bound of memory, in bytes, of a process that may have `hard_mib` and bounds itself."""
    here, there = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if hard_mib is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (hard_mib * MIB, hard_mib * MIB))
            bound_memory(asked_mib)
            os.write(there, json.dumps(resource.getrlimit(resource.RLIMIT_DATA)).encode())
        finally:
            os._exit(0)
    os.close(there)
    os.waitpid(child, 0)
    with os.fdopen(here) as told:
        return json.loads(told.read())


@pytest.mark.parametrize(
    ("hard", "asked", "soft"), [(None, 1500, 1500), (2000, 1500, 1500), (1500, 2000, 1500), (1500, None, 1500)]
)
def test_memory_limit_respects_process_limit(hard, asked, soft):
    """A case that may have more has as much as its process, whose own bound stays."""
    before = resource.getrlimit(resource.RLIMIT_DATA)[1]
    assert bounds_of_a_child(hard, asked) == [soft * MIB, before if hard is None else hard * MIB]


def test_schedule_digest_covers_starts_and_ends(tmp_path):
    written(tmp_path)
    found = execute_case({**build_study_cases(words(jobs=True), tmp_path).cases[0].task, "memory_mib": None})
    with np.load(io.BytesIO(found.jobs)) as columns:
        times = columns["start_s"].tobytes() + columns["end_s"].tobytes()
    assert found.result["schedule_sha256"] == hashlib.sha256(times).hexdigest()


def test_rejects_file_changed_since_read(tmp_path):
    written(tmp_path)
    case = build_study_cases(words(), tmp_path).cases[0]
    assert execute_case({**case.task, "sha256": "0" * 64}).result == {
        "outcome": "failed", "why": "four.swf: has changed since the study was read",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "memory_mib", "told"),
    [
        (MemoryError(), None, {"outcome": "failed", "why": "not enough memory"}),
        (MemoryError(), 300, {"outcome": "did not end", "why": "did not end in 300 MiB", "limit": {"memory_mib": 300}}),
        (ZeroDivisionError("by zero"), None, {"outcome": "failed", "why": "ZeroDivisionError: by zero"}),
    ],
)
def test_replay_exception_is_result(tmp_path, monkeypatch, error, memory_mib, told):
    from cpsched_sim.study import case_execution

    def raises(*args, **more):
        raise error

    written(tmp_path)
    monkeypatch.setattr(case_execution, "replay_workload", raises)
    case = build_study_cases(words(), tmp_path).cases[0]
    assert execute_case({**case.task, "memory_mib": memory_mib}).result == told


def test_max_jobs_gives_prefix_of_generated_workload():
    def made(**more):
        traces = {"made": {"generate": "eurora", "days": 0.1, **more}}
        grid = {"traces": ["made"], "dispatchers": ["easy"]}
        (case,) = build_study_cases({"title": "t", "traces": traces, "grids": [grid]}).cases
        return execute_case({**case.task, "memory_mib": None}).result["figures"]["jobs"]

    assert made(max_jobs=7) == 7 < made()
