import pyarrow as pa
import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.pm100 import Pm100TraceReader
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest
from tests.unit.sim.traces.tables import MORNING_S, at, pm100, write


@pytest.fixture
def read(tmp_path):
    def reader(*rows, lenient=False, **types):
        return Pm100TraceReader(write(tmp_path / "job_table.parquet", rows, **types), lenient)

    return reader


def test_row_becomes_record(read_one):
    ask = UnitsRequest(2, (("cores", 32), ("memory_mib", 204_800), ("gpus", 4)), distinct=True, partition="1")
    assert read_one(pm100()) == TraceRecord(
        1, MORNING_S, 600, 3600, ask, "17", "", "1", "", MORNING_S + 300, "r1n1,r1n2", "0", power_w=1100
    )


@pytest.mark.parametrize(
    ("shared", "exclusive"), [("0", True), ("no", True), ("1", False), ("OK", False), (None, False)]
)
def test_unshared_job_has_whole_nodes(read_one, shared, exclusive):
    assert read_one(pm100(shared=shared), shared=pa.string()).ask.exclusive is exclusive


@pytest.mark.parametrize(
    ("limit", "expected_s"),
    [
        *((60, 3600), ("60", 3600), (60.0, 3600), (90.5, 5430), ("90.5", 5430), (0.01, 1)),
        *(("INFINITE", 600), (None, 600), (0, 600), (0.0, 600), (float("nan"), 600)),
    ],
)
def test_limit_is_in_minutes_or_missing(read, limit, expected_s):
    reader = read(pm100(time_limit=limit), time_limit=column_type(limit))
    assert [record.walltime_s for record in reader] == [expected_s]
    taken = ["in 1 job: walltime is the run time, because the limit is missing"] if expected_s == 600 else []
    assert reader.tally.to_sentences() == taken


def column_type(value):
    return {str: pa.string(), float: pa.float64()}.get(type(value), pa.int64())


@pytest.mark.parametrize("limit", ["1e3", "-1", "soon", -1, -1.0, float("inf"), 1e300])
def test_invalid_limit_is_never_replaced_by_run_time(read, limit):
    with pytest.raises(InvalidTrace, match=r"time_limit|walltime_s"):
        list(read(pm100(time_limit=limit), time_limit=column_type(limit)))


def test_truncates_fractional_unix_times(read_one):
    times = {"submit_time": MORNING_S + 0.75, "start_time": MORNING_S + 300.99, "end_time": MORNING_S + 900.0}
    kinds = dict.fromkeys((*times, "eligible_time"), pa.float64())
    record = read_one(pm100(**times, eligible_time=float("nan")), **kinds)
    assert (record.submit_s, record.start_s, record.run_s) == (MORNING_S, MORNING_S + 300, 600)


@pytest.mark.parametrize(("eligible", "arrival"), [(at(120), 120), (None, 0), (at(301), 0), (at(-5), 0)])
def test_job_arrives_when_eligible_if_possible(read_one, eligible, arrival):
    record = read_one(pm100(eligible_time=eligible), eligible_time=pa.timestamp("ns", "UTC"))
    assert record.submit_s == MORNING_S + arrival


def test_drops_and_counts_jobs_that_did_not_run(read):
    reader = read(
        pm100(1), pm100(2, start_time=None, end_time=None), pm100(3, end_time=None), pm100(4, end_time=at(300))
    )
    assert [record.id for record in reader] == [1]
    assert reader.tally.to_sentences() == [
        "dropped 2 jobs: never started, or had not ended",
        "dropped 1 job: run time below 1 s",
    ]


@pytest.mark.parametrize(("consumption", "power_w"), [([1, 2], 2), ([], None), (None, None), ([400, None, 600], 500)])
def test_power_is_mean_of_measurements(read_one, consumption, power_w):
    row = pm100(node_power_consumption=consumption)
    assert read_one(row, node_power_consumption=pa.list_(pa.int64())).power_w == power_w


def test_reads_former_power_column(read_one):
    row = pm100(power_consumption=[10.0, 20.0, 40.0])
    del row["node_power_consumption"]
    assert read_one(row).power_w == 23


def test_single_node_is_not_distinct(read_one):
    assert not read_one(pm100(num_nodes_alloc=1)).ask.distinct


def test_too_long_word_names_its_column(read):
    with pytest.raises(InvalidTrace, match=r":1: qos: x+\.\.\. \(65,537 characters\): must not be longer"):
        list(read(pm100(qos="x" * 65_537)))


def test_missing_columns_are_empty(read_one):
    record = read_one({name: value for name, value in pm100().items() if name in Pm100TraceReader.NEEDED})
    assert record.ask == UnitsRequest(2, (("cores", 32),), distinct=True)
    assert (record.user, record.nodes, record.power_w) == ("", "", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_nodes_alloc": 0}, ":2: num_nodes_alloc, num_cores_alloc: (0, 64): must be positive"),
        ({"num_gpus_alloc": -1}, ":2: num_gpus_alloc: -1: must not be negative"),
        ({"submit_time": None}, ":2: submit_time: : must not be empty"),
        ({"job_id": 1}, ":2: job: 1: must occur only once"),
        ({"job_id": None}, ":2: job_id: : must not be empty"),
        (
            {"submit_time": at(-MORNING_S - 1), "eligible_time": at(-MORNING_S - 1)},
            ":2: submit_s: -1: must be from 0 to 1,099,511,627,776",
        ),
    ],
)
def test_error_names_file_row_column_value_and_rule(read, fields, message):
    reader = read(pm100(1), pm100(2, **fields))
    with pytest.raises(InvalidTrace) as error:
        list(reader)
    assert str(error.value) == f"{reader.path}{message}"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_cores_alloc", 1.5, "num_cores_alloc: 1.5: must be a whole number"),
        ("mem_alloc", "many", "mem_alloc: many: must be a whole number"),
        ("node_power_consumption", "low", "power: low: must be a list of numbers"),
    ],
)
def test_wrong_type_names_column(read, name, value, message):
    with pytest.raises(InvalidTrace, match=f":1: {message}"):
        list(read(pm100(**{name: value})))


def test_lenient_reading_skips_and_counts(read):
    reader = read(pm100(1), pm100(2, num_nodes_alloc=0), pm100(3), lenient=True)
    assert [record.id for record in reader] == [1, 3]
    assert reader.tally.broken == 1


def test_start_before_submission_is_not_recorded(read):
    reader = read(pm100(submit_time=at(301)))
    assert next(iter(reader)).start_s is None
    assert reader.tally.taken.total() == 1


def test_names_missing_column(read):
    row = pm100()
    del row["time_limit"], row["job_id"]
    with pytest.raises(InvalidTrace, match=r"job_table.parquet:0: columns: job_id, time_limit: must be in the table"):
        read(row)


def test_dropped_jobs_do_not_reach_line_limit(read, monkeypatch):
    monkeypatch.setattr("cpsched_sim.traces.trace_record.MAX_LINES_WITHOUT_JOB", 2)
    rows = [pm100(job, start_time=None, end_time=None) for job in range(1, 6)]
    assert [record.id for record in read(*rows, pm100(9))] == [9]
