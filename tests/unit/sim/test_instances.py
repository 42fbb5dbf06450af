"""Instances: what is written down is what was decided on, and every dispatcher can be given it again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cpsched import catalogue
from cpsched.model import Snapshot
from cpsched_sim.cli import app
from cpsched_sim.errors import InvalidFile, Unusable
from cpsched_sim.instances import (
    Solved,
    header_to_json,
    instance_from_json,
    instance_to_json,
    ratios,
    read_instances,
    to_rcp,
    write_instances,
)
from cpsched_sim.instances_solving import solved
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied


def a_round() -> Snapshot:
    """Two running jobs, one of which has outlived its estimate, and a node half of which is out of service."""
    cluster = a_cluster(nodes=3, cores=4, memory=8)
    running = [
        a_running(a_job(8, units=2, per_unit=(2, 1), walltime_s=300), ((0, 1), (1, 1)), 50),
        a_running(a_job(9, per_unit=(1, 2), walltime_s=500, exclusive=True), ((2, 1),), 20),
    ]
    queue = [
        a_job(1, per_unit=(2, 0), submit_s=60, user="ada", queue="q"),
        a_job(2, units=2, distinct=True, per_unit=(1, 1)),
    ]
    full = a_snapshot(cluster, queue, running, 200, {8: 100, 9: 400, 1: 70})
    free = full.free.copy()
    free[1, 0] -= 1
    known = {1: 70, 2: 100, 8: 100, 9: 400}
    return Snapshot.of(200, cluster, free, queue, running, known)


def test_an_instance_comes_back_as_it_was() -> None:
    before = a_round()
    line = json.loads(json.dumps(instance_to_json(7, before)))
    after = instance_from_json(line, before.cluster)
    assert after.number == 7
    assert np.array_equal(after.snapshot.free, before.free)
    assert after.snapshot.queued_jobs() == before.queued_jobs()
    assert after.snapshot.running_jobs() == before.running_jobs()
    for name in ("estimate_s", "end_s"):
        assert np.array_equal(getattr(after.snapshot.table, name), getattr(before.table, name)), name


@pytest.mark.parametrize("name", ["i.jsonl", "i.jsonl.gz"])
def test_a_file_comes_back_with_its_cluster(tmp_path, name: str) -> None:
    before = a_round()
    lines = [json.dumps(instance_to_json(number, before)) for number in (3, 5)]
    write_instances(tmp_path / name, header_to_json(before.cluster, {"trace": "x"}), lines)
    after = list(read_instances(tmp_path / name))
    assert [instance.number for instance in after] == [3, 5]
    assert np.array_equal(after[0].snapshot.cluster.capacity, before.cluster.capacity)
    for dispatcher in ("pcp20", "hcp1", "easy"):
        decisions = [catalogue.dispatcher(dispatcher).decide(s) for s in (before, after[1].snapshot)]
        assert decisions[0].starts_by_job(before) == decisions[1].starts_by_job(after[1].snapshot)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['{"format": "other", "version": 1}'], "1: .*format=other"),
        (['{"format": "cpsched-instances", "version": 2}'], "1: .*version=2"),
        (["not json"], "1: .*JSONDecodeError"),
        ([json.dumps(header_to_json(a_cluster(), {})), '{"number": 1}'], "2: .*KeyError"),
    ],
)
def test_a_file_that_is_none_is_refused_by_its_line(tmp_path, lines: list[str], says: str) -> None:
    (tmp_path / "i.jsonl").write_text("\n".join(lines))
    with pytest.raises(InvalidFile, match=says):
        list(read_instances(tmp_path / "i.jsonl"))
    (tmp_path / "empty").write_text("")
    with pytest.raises(Unusable, match="is empty"):
        list(read_instances(tmp_path / "empty"))


def a_row(instance: int, dispatcher: str, variables: int) -> Solved:
    zeros = dict.fromkeys(Solved.__dataclass_fields__, 0)
    return Solved(**zeros | {"instance": instance, "dispatcher": dispatcher, "variables": variables})  # type: ignore[arg-type]


def test_ratios_are_taken_instance_by_instance_where_both_are_known() -> None:
    rows = [a_row(1, "a", 10), a_row(1, "b", 20), a_row(2, "a", 5), a_row(2, "b", 0), a_row(3, "a", 5)]
    assert ratios(rows, "a", "b", "variables") == [0.5]


def test_solving_tells_variables_objective_and_gap() -> None:
    instance = instance_from_json(instance_to_json(1, a_round()), a_round().cluster)
    row = solved(instance, "pcp20", studied("pcp20", {"certain": "no", "effort": "2000"}))
    assert (row.path, row.status, row.considered) == ("solver", "optimal", 2)
    assert row.gap == pytest.approx(0.0)
    assert row.variables == 2 + 3 * 2
    assert row.memory_mb > 10


def test_an_export_has_every_job_and_the_pools() -> None:
    """Source, two queued and two running jobs, sink; cores and memory of all nodes, less what is out of service."""
    lines = to_rcp(a_round()).splitlines()
    assert lines[0].split() == ["6", "2"]
    assert lines[1].split() == ["11", "24"]
    assert lines[2].split() == ["0", "0", "0", "4", "2", "3", "4", "5"]
    assert sorted(lines[3:7]) == sorted(["70 2 0 1 6", "100 2 2 1 6", "1 4 2 1 6", "220 4 8 1 6"])
    assert lines[7].split() == ["0", "0", "0", "0"]


def test_record_and_solve_from_the_command_line(tmp_path) -> None:
    run = CliRunner()
    jobs, rounds, rows = tmp_path / "jobs.gz", tmp_path / "rounds.jsonl.gz", tmp_path / "rows.csv"
    assert run.invoke(app, ["workload", "eurora", "--out", str(jobs), "--days", "0.05"]).exit_code == 0
    recorded = run.invoke(
        app, ["instances", "record", str(jobs), "--out", str(rounds), "--dispatcher", "hcp19", "--most", "3"]
    )
    assert recorded.exit_code == 0, recorded.output
    assert "3 instances" in recorded.output
    solve = [
        "instances",
        "solve",
        str(rounds),
        "--dispatcher",
        "hcp19",
        "--dispatcher",
        "easy",
        "--csv",
        str(rows),
        "--json",
    ]
    found = run.invoke(app, [*solve, "--effort", "50"])
    assert found.exit_code == 0, found.output
    assert [row["instances"] for row in json.loads(found.stdout)["instances"]] == [3, 3]
    assert len(rows.read_text().splitlines()) == 1 + 2 * 3
    wrong = run.invoke(app, [*solve, "--set", "nosuch=1"])
    assert (wrong.exit_code, "is a parameter of none of them" in wrong.output) == (2, True)
