"""A cluster estimated from its accounting data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_sim.errors import InputError
from cpsched_sim.systems.system_draft import draft_system_from_records, render_and_parse_draft
from cpsched_sim.systems.system_file import System
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceRecord, UnitsRequest
from cpsched_sim.workloads.system_draft_sources import draft_system
from cpsched_sim.workloads.workload_loader import load
from tests.traces import XDMOD, trace

RESOURCES = ("cores", "memory_mib", "gpus")


def job(id, start_s, run_s, nodes, cores, where="", partition="", memory_mib=0, gpus=0):
    each = tuple((n, a) for n, a in (("cores", cores), ("memory_mib", memory_mib), ("gpus", gpus)) if a)
    ask = UnitsRequest(nodes, each, distinct=nodes > 1, partition=partition)
    return TraceRecord(id, 0, run_s, run_s, ask, start_s=start_s, nodes=where)


def drafted(*records):
    text, file = render_and_parse_draft(draft_system_from_records(records, RESOURCES, "site"))
    return text, file


def kinds(file):
    return {name: (kind.count, dict(kind.each)) for name, kind in file.node_types.items()}


def test_node_size_is_peak_use_of_its_jobs():
    text, file = drafted(
        job(1, 0, 100, 1, 4, "a1", memory_mib=10),
        job(2, 50, 100, 1, 4, "a1", memory_mib=20),
        job(3, 150, 100, 1, 6, "a1", memory_mib=5),
    )
    assert kinds(file) == {"cpu8": (1, {"cores": 8, "memory_mib": 30})}
    assert "Peak use: 8 of these 8 cores." in text
    assert text.startswith("# Guessed from peak use")


def test_job_starting_at_end_of_another_does_not_overlap():
    _, file = drafted(job(1, 0, 100, 1, 4, "a1"), job(2, 100, 100, 1, 4, "a1"))
    assert kinds(file) == {"cpu4": (1, {"cores": 4})}


def test_equal_nodes_share_partition_gpus_and_largest_size():
    _, file = drafted(
        job(1, 0, 9, 1, 4, "a1", "cpu"),
        job(2, 0, 9, 2, 8, "a[1-2]", "cpu"),
        job(3, 0, 9, 1, 2, "g1", "gpu", gpus=1),
        job(4, 20, 9, 1, 2, "g2", "gpu"),
        job(5, 40, 9, 1, 2, "g2", "all"),
    )
    assert kinds(file) == {
        "cpu8": (2, {"cores": 8}), "cpu2": (1, {"cores": 2}), "cpu2-gpu1": (1, {"cores": 2, "gpus": 1}),
    }  # fmt: skip
    assert {name: list(types) for name, types in file.partitions.items()} == {
        "all": ["cpu2"], "cpu": ["cpu8"], "gpu": ["cpu2", "cpu2-gpu1"],
    }  # fmt: skip


def test_number_of_nodes_without_lists_is_peak_use():
    text, file = drafted(job(1, 0, 100, 3, 8, memory_mib=50), job(2, 50, 100, 2, 4, gpus=1))
    assert kinds(file) == {"cpu8-gpu1": (4, {"cores": 8, "memory_mib": 50, "gpus": 1})}
    assert "Peak use: 32 cores, 150 memory_mib, 2 gpus; the widest job had 3 nodes." in text
    assert "does not list the jobs' nodes (NodeList)" in text


def test_ignores_impossible_node_list():
    text, _ = drafted(job(1, 0, 100, 2, 8, "a[1-2"), job(2, 0, 100, 2, 8, "a[1-2]"))
    assert "does not list the jobs' nodes" in text


def test_trace_of_processors_is_one_pool():
    text, file = drafted(*(TraceRecord(i, 0, 100, 100, ProcessorCountRequest(3 + i), start_s=50 * i) for i in range(3)))
    assert kinds(file) == {"pool": (1, {"processors": 9})}
    assert System(file).request(ProcessorCountRequest(9)).units == 9
    assert "# The trace has processors but no nodes" in text


def test_rejects_trace_without_starts():
    with pytest.raises(InputError, match="has no job starts"):
        drafted(job(1, None, 5, 1, 1))


def test_rejects_impossible_sums():
    with pytest.raises(InputError, match="more than any machine has"):
        drafted(job(1, 0, 5, 1, 2**52), job(2, 0, 5, 1, 2**52 + 1))


JOBS = st.tuples(
    st.integers(0, 50), st.integers(1, 50), st.integers(1, 4), st.integers(1, 9), st.integers(0, 9), st.integers(0, 2),
    st.sampled_from(["", "p", "q"]), st.integers(1, 3),
)  # fmt: skip


@scaled_example_settings(150)
@given(st.lists(JOBS, min_size=1, max_size=12), st.booleans())
def test_every_job_of_file_fits_on_drafted_system(rows, placed):
    records = [
        job(id, start, run, nodes, cores, f"n[{at}-{at + nodes - 1}]" if placed else "", partition, memory, gpus)
        for id, (start, run, nodes, cores, memory, gpus, partition, at) in enumerate(rows)
    ]
    system = System(drafted(*records)[1])
    for record in records:
        assert system.request(record.ask).units == record.ask.units


def test_system_from_accounting_gives_similar_waits(tmp_path):
    path = trace(XDMOD)
    text, file = render_and_parse_draft(draft_system(str(path), "phillips")[0])
    assert kinds(file) == {
        "cpu8-10g": (4, {"cores": 8, "memory_mib": 10500}), "cpu8-22g": (40, {"cores": 8, "memory_mib": 23000}),
        "cpu8-23g": (1, {"cores": 8, "memory_mib": 24000}),
        "cpu12-30g-gpu2": (1, {"cores": 12, "memory_mib": 31000, "gpus": 2}),
    }  # fmt: skip
    (tmp_path / "site.yaml").write_text(text)
    assert len(load(path, str(tmp_path / "site.yaml")).jobs) == 4024
