"""Studies of GPU placement without departures."""

import json

import pytest
import yaml

from cpsched_sim.study.placement_study import place_workload, read_arrivals, read_gpu_workload, read_nodes
from tests.traces import trace
from tests.unit.sim.study.test_command import invoke

NODES = "sn,cpu_milli,memory_mib,gpu,model\nb,8000,1000,2,T4\na,4000,1000,1,A10\n"
REQUESTS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p0,1000,10,1,600,
p1,1000,10,1,400,T4
p2,2000,10,2,1000,T4|A10
p3,1000,20,1,600,
p4,3000,10,0,0,
p5,1000,10,1,900,
"""
ARRIVALS = "seed,order\n7,0 1 2 5 4 3\n8,2 0 1 5 4 3\n"


@pytest.fixture
def study(tmp_path):
    for name, text in (("nodes.csv", NODES), ("w.csv", REQUESTS), ("w-order.csv", ARRIVALS)):
        (tmp_path / name).write_text(text)
    (tmp_path / "published.csv").write_text("workload,rule,allocated_100,allocated_130\nw,fgd,86.5,90.25\n")
    placement = {
        "nodes": "nodes.csv", "requests": "{workload}.csv", "arrivals": "{workload}-order.csv", "workloads": ["w"],
        "seeds": [7, 8], "rules": ["fgd", "best-fit"], "published": "published.csv",
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"title": "Two nodes", "placement": placement}))
    return path


def test_reads_nodes_kinds_and_typical_requests(study):
    nodes, types = read_nodes(study.parent / "nodes.csv")
    assert (types, nodes.types.tolist()) == (["A10", "T4"], [1, 2])
    assert nodes.free_parts[:, :3].tolist() == [[1000, 0, 0], [1000, 1000, 0]]
    workload = read_gpu_workload(study.parent / "w.csv", types)
    assert workload.kinds.tolist() == [
        [1000, 10, 1, 600, 3],
        [1000, 10, 1, 400, 2],
        [2000, 10, 2, 1000, 3],
        [1000, 20, 1, 600, 3],
        [3000, 10, 0, 0, 3],
        [1000, 10, 1, 900, 3],
    ]
    assert workload.kind_of_request.tolist() == [0, 1, 2, 3, 4, 5]
    assert workload.typical_kinds.tolist() == [0, 4, 2, 5, 1]  # kinds 0 and 3 differ only in memory
    assert workload.typical_shares.tolist() == pytest.approx([2 / 6, *[1 / 6] * 4])
    assert read_arrivals(study.parent / "w-order.csv", 8, 6).tolist() == [2, 0, 1, 5, 4, 3]


def test_command_runs_reports_and_resumes(study, tmp_path):
    """With seed 7, the request for two GPUs is rejected. With seed 8, it comes first, and three parts are rejected."""
    out = tmp_path / "out"
    assert json.loads(invoke("run", study, "--out", out, "--dry-run", "--json").stdout) == {"cases": 4}
    shown = invoke("run", study, "--out", out)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == (out / "report.md").read_text()
    rows = json.loads((out / "results.json").read_text())
    assert [
        (row["load"], row["rule"], row["seeds"], round(row["allocated"], 2), row["published"], row["gain"])
        for row in rows
    ] == [
        (100, "fgd", 2, 60.0, 86.5, 0.0),
        (100, "best-fit", 2, 60.0, None, 0.0),
        (130, "fgd", 2, 75.0, 90.25, 0.0),
        (130, "best-fit", 2, 75.0, None, 0.0),
    ]
    assert (round(rows[0]["allocated_stdev"], 2), round(rows[0]["fragmented"], 2)) == (37.71, 23.89)
    stored = {path.name: path.stat().st_mtime_ns for path in (out / "cases").iterdir()}
    assert len(stored) == 4
    assert invoke("run", study, "--out", out).stdout == shown.stdout
    assert {path.name: path.stat().st_mtime_ns for path in (out / "cases").iterdir()} == stored


def test_failed_case_runs_again_only_with_retry(study, tmp_path):
    out, orders = tmp_path / "out", study.parent / "w-order.csv"
    study.write_text(study.read_text().replace("- 8\n", "- 9\n"))  # there are no arrivals with seed 9
    first = invoke("run", study, "--out", out)
    assert first.exit_code == 1
    assert f"w, seed 9, fgd: {orders}: has no arrivals with seed 9" in first.output

    def run(*options):
        stored = {path: path.stat().st_mtime_ns for path in (out / "cases").iterdir()}
        result = invoke("run", study, "--out", out, *options)
        assert result.output == first.output
        return sum(path.stat().st_mtime_ns != stored[path] for path in (out / "cases").iterdir())

    assert (run(), run("--retry"), run()) == (0, 2, 0)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("nodes.csv", "8000", "8e3", "nodes.csv:2: cpu_milli: 8e3: must be a whole number from 0 to 1099511627776"),
        ("nodes.csv", "2,T4", "9,T4", "nodes.csv:2: gpu: 9: must be a whole number from 0 to 8"),
        ("nodes.csv", ",T4", "", "nodes.csv:2: columns: 4: must be 5, as in the header"),
        ("nodes.csv", "model", "kind", "nodes.csv:1: model: sn,cpu_milli,memory_mib,gpu,kind: is not in the header"),
        ("w.csv", "2,1000", "2,500", "w.csv:4: gpu_milli: 500: must be 1000 for each of several GPUs"),
        ("w-order.csv", "7,0 1", "7,0 6", "w-order.csv:2: order: 0 6 2 5 4 3: must be row numbers from 0 to 5"),
        ("w-order.csv", "\n7,", "\n9,", "w-order.csv: has no arrivals with seed 7"),
        ("published.csv", "86.5", "many", "published.csv:2: allocated_100: many: must be a number"),
        ("study.yaml", "nodes.csv", "gone.csv", "gone.csv: is neither next to the study nor in the folder"),
        (
            "study.yaml",
            "- fgd",
            "- worst",
            "study.yaml:7: placement.rules.0: worst: must be 'best-fit', 'fgd' or 'rollout'",
        ),
    ],
)
def test_bad_input_is_reported(study, tmp_path, file, old, new, message):
    path = study.parent / file
    changed = path.read_text().replace(old, new, 1)
    assert changed != path.read_text()
    path.write_text(changed)
    result = invoke("run", study, "--out", tmp_path / "out")
    assert result.exit_code != 0
    assert message in result.output


def test_openb_equals_published_results():
    """Our FGD differs from the published one by at most 0.3 points, and rollouts allocate more."""
    nodes_path = trace("openb/openb_node_list_gpu_node.csv.gz")
    orders = trace("openb/orders/openb_pod_list_multigpu50.csv.gz")
    _, types = read_nodes(nodes_path)
    workload = read_gpu_workload(trace("openb/openb_pod_list_multigpu50.csv.gz"), types)
    order = read_arrivals(orders, 42, len(workload.kind_of_request))
    results = {rule: place_workload(read_nodes(nodes_path)[0], workload, order, rule) for rule in ("best-fit", "fgd")}
    assert {rule: round(result.allocated["100"], 2) for rule, result in results.items()} == {
        "best-fit": 95.34,
        "fgd": 97.16,
    }
