"""Printing an object of the public API never prints all jobs of a trace."""

from collections.abc import Mapping
from dataclasses import replace
from inspect import getmembers_static
from itertools import islice

import pytest
import yaml

import cpsched
import cpsched_sim
from cpsched.formatting import MAX_REPR_CHARS, MAX_REPR_LINES, join_repr_lines
from cpsched.model import Cluster
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_report import StudyResults
from cpsched_sim.study.study_schema import EXAMPLE_STUDY
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload
from tests.builders import a_job

JOBS = 400
"""Enough jobs and nodes that a representation of all of them would be too long."""
CLUSTER = Cluster.of([[1]] * JOBS, ["cores"], node_sets={"all of them": range(JOBS)})


class Planning(cpsched.Dispatcher):
    """Plans like `easy`, and keeps the first snapshot and decision with a long queue."""

    def decide(self, snapshot, need="plan"):
        decision = cpsched.plan(snapshot, reservations=1, need="plan")
        if len(snapshot.queue) == JOBS - 1:
            self.kept = snapshot, decision
        return decision


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A value of each class that the functions of the public API return."""
    jobs = [TraceJob(replace(a_job(at, units=JOBS), user=f"u{at}"), 10, recorded_start_s=10 * at) for at in range(JOBS)]
    workload = Workload("long", "pool", CLUSTER, jobs, {}, ())
    dispatcher = Planning()
    folder = tmp_path_factory.mktemp("study")
    return [
        workload,
        cpsched_sim.simulate(workload, dispatcher),
        cpsched_sim.compare(workload.head(30), ["easy", "fcfs", "greedy", "list-saf"], ["walltime", "last-two"]),
        cpsched_sim.recorded_schedule_of(workload),
        *cpsched_sim.METRICS,
        *dispatcher.kept,
        StudyResults(build_study_cases(yaml.safe_load(EXAMPLE_STUDY), folder), {}, folder),
    ]


def objects_within(value, path, seen):
    """Yield (path, object) of an object of ours, and of those in its public attributes and first items."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in islice(items, 3):
            yield from objects_within(item, f"{path}[{name}]", seen)
    if type(value).__module__.partition(".")[0] in ("cpsched", "cpsched_sim"):
        yield path, value
        for name, _ in getmembers_static(type(value)):
            if not name.startswith(("_", "model_")) and not callable(item := getattr(value, name)):
                yield from objects_within(item, f"{path}.{name}", seen)


def test_representations_are_short(results):
    found = [(path, repr(each)) for one in results for path, each in objects_within(one, type(one).__name__, {})]
    assert len(found) > 60
    long = {path: (text.count("\n") + 1, len(text)) for path, text in found
            if text.count("\n") >= MAX_REPR_LINES or len(text) > MAX_REPR_CHARS}  # fmt: skip
    assert long == {}


def test_comparison_of_many_policies_names_table(results):
    (comparison,) = (each for each in results if isinstance(each, cpsched_sim.Comparison))
    rows = replace(comparison, rows=5 * comparison.rows)
    assert repr(rows).endswith(" more lines: see to_frame()")


@pytest.mark.parametrize(("lines", "shown"), [(20, 20), (21, 20)])
def test_last_line_counts_those_that_are_left_out(lines, shown):
    text = join_repr_lines(["x"] * lines, "rows")
    assert text.count("\n") == shown - 1
    assert text.endswith("... 2 more lines: see rows") is (lines > 20)
