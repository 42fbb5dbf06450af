from datetime import timedelta

import pyarrow as pa
import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.kestrel import KestrelTraceReader
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest
from tests.unit.sim.traces.tables import MORNING_S, MOUNTAIN, at, kestrel, write


@pytest.fixture
def read(tmp_path):
    def reader(*rows, lenient=False, **types):
        return KestrelTraceReader(write(tmp_path / "month.parquet", rows, **types), lenient)

    return reader


def test_row_becomes_record(read_one):
    ask = UnitsRequest(2, (("cores", 104),), distinct=True, partition="short")
    assert read_one(kestrel()) == TraceRecord(
        7, MORNING_S, 600, 4 * 3600, ask, "1111111", "0a1b2c3", "short", "2222222", MORNING_S + 300,
        "x1004c3s0b1n1,x1004c3s0b1n2", "normal", power_w=1200,
    )  # fmt: skip


TIMES = {"submit_time": 0, "start_time": 300, "end_time": 900}


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        (pa.timestamp("ns", "UTC"), {}),
        (pa.timestamp("us", "-07:00"), {}),
        (pa.timestamp("ms"), {name: at(seconds).replace(tzinfo=None) for name, seconds in TIMES.items()}),
        # 2020-05-03 23:00:00-07
        (pa.string(), {name: str(at(seconds, MOUNTAIN)).removesuffix(":00") for name, seconds in TIMES.items()}),
    ],
)
def test_months_have_different_time_zones(read_one, kind, times):
    record = read_one(kestrel(**times), **dict.fromkeys(TIMES, kind))
    assert (record.submit_s, record.start_s, record.run_s) == (MORNING_S, MORNING_S + 300, 600)


@pytest.mark.parametrize(
    ("limit", "expected_s"),
    [
        (timedelta(days=2, seconds=5), 172_805), (90, 90), ("04:00:00", 14_400), ("2 days", 172_800),
        ("1 day 00:00:01", 86_401), ("10 days, 12:00:00", 907_200), ("36:00:00", 129_600), (None, 600),
    ],
)  # fmt: skip
def test_limits_are_intervals(read_one, limit, expected_s):
    kind = {"wallclock_req": pa.int64()} if limit is None else {}
    assert read_one(kestrel(wallclock_req=limit), **kind).walltime_s == expected_s


@pytest.mark.parametrize("limit", ["", "days", "soon", "1:2:3", "2 days 4"])
def test_rejects_invalid_interval(read, limit):
    with pytest.raises(InvalidTrace, match=r":1: wallclock_req: .*: must be an interval like 04:00:00"):
        list(read(kestrel(wallclock_req=limit)))


def test_array_tasks_are_jobs(read):
    assert [record.id for record in read(kestrel("7"), kestrel("7_3"), kestrel("8+1"))] == [7, -70000003, -89000001]


def test_invalid_job_id_names_row_and_column(read):
    with pytest.raises(InvalidTrace, match=r":2: id: seven: must be a whole number"):
        list(read(kestrel("6"), kestrel("seven")))


def test_drops_pending_array_before_parsing_its_id(read):
    reader = read(kestrel("9_[1-5]", start_time=None, end_time=None), kestrel("7"))
    assert [record.id for record in reader] == [7]
    assert reader.tally.to_sentences() == ["dropped 1 job: never started, or had not ended"]


@pytest.mark.parametrize(
    ("fields", "each"),
    [
        ({"nodes_used": 0, "processors_used": 0, "nodes_req": 2}, (("cores", 52),)),
        ({"gpus_requested": 7}, (("cores", 104), ("gpus", 4))),
        ({"nodes_req": 9}, (("cores", 104),)),
    ],
)
def test_request_replaces_missing_allocation(read_one, fields, each):
    ask = read_one(kestrel(**fields)).ask
    assert (ask.units, ask.each) == (2, each)


@pytest.mark.parametrize(
    ("joules", "power_w", "ignored"),
    [(600, 1, 0), (0, None, 0), (None, None, 0), (2**64 - 2, None, 1), (299, None, 1), (-600, None, 1)],
)
def test_power_is_energy_per_time_if_measured(read, joules, power_w, ignored):
    kind = pa.uint64() if joules and joules > 0 else pa.int64()
    reader = read(kestrel(consumed_energy_raw_joules=joules), consumed_energy_raw_joules=kind)
    assert next(iter(reader)).power_w == power_w
    assert reader.tally.ignored.total() == ignored


def test_node_list_may_have_database_syntax(read_one):
    assert read_one(kestrel(nodelist="{x1,x2}")).nodes == "x1,x2"


def test_rejects_job_without_nodes(read):
    with pytest.raises(InvalidTrace, match=r"nodes_req, processors_req: \(0, 208\): must be positive"):
        list(read(kestrel(nodes_used=0, nodes_req=0)))
