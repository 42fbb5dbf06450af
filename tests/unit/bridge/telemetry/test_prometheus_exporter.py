import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cpsched.model import NO_STARTS, Decision, Effort
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import OBJECT_KINDS, Hold, ReadinessCheck, UnmanagedJob, UnusableObject
from cpsched_bridge.settings import Settings
from cpsched_bridge.telemetry.forecast_outcomes import (
    BridgeStatusFacts,
    CycleReportWithOutcomes,
    RunTimeOutcome,
    StartTimeOutcome,
)
from cpsched_bridge.telemetry.metric_families import (
    MAX_PARTITION_SERIES,
    METRICS,
    MetricFamily,
)
from cpsched_bridge.telemetry.prometheus_exporter import PrometheusExporter
from cpsched_bridge.web.status_application import StatusApplication
from tests.builders import a_cluster, a_cycle_report, a_job, a_snapshot, an_observation
from tests.fakes import FakeCluster


@pytest.fixture
def watch():
    return StatusApplication(Settings(mode="control"))


def scrape(exporter):
    """(name, labels) -> value."""
    families = list(text_string_to_metric_families(exporter.render_metrics().decode()))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def partition(name):
    return (("partition", name),)


def after(**facts):
    """What an exporter serves after one cycle."""
    exporter = PrometheusExporter()
    exporter(CycleReportWithOutcomes(a_cycle_report(**facts)))
    return scrape(exporter)


def test_exports_activity_of_bridge(bridge_at, watch):
    unmanaged = [UnmanagedJob(id, "array") for id in (8, 9)]
    cluster = FakeCluster(cluster=a_cluster(nodes=2, cores=4), now_s=100, unmanaged=unmanaged)
    cluster.submit(a_job(1, per_unit=4, queue="a"), a_job(2, per_unit=4, queue="b"))
    cluster.submit(a_job(3, per_unit=4, submit_s=20, queue="a,b"))
    cluster.submit(a_job(4), hold=Hold.USER)
    bridge = bridge_at(cluster, listeners=(watch,))
    bridge.cycle()
    bridge.pace.at_s += 0.3
    cluster.now_s += 40
    bridge.cycle()
    cluster.end(1)
    bridge.cycle()
    found = scrape(watch.exporter)
    expected = {
        ("cpsched_cycles_total", (("result", "ok"),)): 3,
        ("cpsched_solves_total", (("path", "first-fit"), ("status", "none"))): 3,
        ("cpsched_commands_total", (("kind", "start"), ("result", "done"))): 3,
        ("cpsched_decision_to_running_seconds_count", ()): 2,
        ("cpsched_decision_to_running_seconds_sum", ()): pytest.approx(0.6),
        ("cpsched_queued_jobs", partition("a")): 1,
        ("cpsched_queued_jobs", partition("b")): 0,
        ("cpsched_oldest_pending_seconds", partition("a")): 120,
        ("cpsched_oldest_pending_seconds", partition("b")): 0,
        ("cpsched_pending_jobs", ()): 2,
        ("cpsched_waiting_jobs", (("reason", "held_by_owner"),)): 1,
        ("cpsched_waiting_jobs", (("reason", "unmanaged"),)): 2,
        ("cpsched_running_jobs", ()): 1,
        ("cpsched_starting_jobs", ()): 1,
        ("cpsched_held_jobs", ()): 1,
        ("cpsched_started_jobs_total", ()): 2,
        ("cpsched_job_wait_seconds_sum", partition("a")): 100,
        ("cpsched_job_wait_seconds_count", partition("b")): 1,
        ("cpsched_job_bounded_slowdown_ratio_count", ()): 1,
        ("cpsched_job_bounded_slowdown_ratio_sum", ()): pytest.approx(140 / 40),
        ("cpsched_partition_bounded_slowdown_ratio_sum", partition("a")): pytest.approx(140 / 40),
        ("cpsched_mode", (("mode", "control"),)): 1,
        ("cpsched_mode", (("mode", "shadow"),)): 0,
        ("cpsched_resource_capacity", (("resource", "cores"),)): 8,
        ("cpsched_resource_free", (("resource", "cores"),)): 4,
        ("cpsched_last_success_timestamp_seconds", ()): 1_000_000_000.3,
        ("cpsched_cycle_phase_duration_seconds_count", (("phase", "decide"),)): 3,
    }
    assert {key: found[key] for key in expected} == expected
    assert found["process_resident_memory_bytes", ()] > 1e6


def test_metric_names_follow_conventions_without_job_labels():
    for metric in METRICS:
        assert metric.name.startswith("cpsched_")
        assert metric.name.rpartition("_")[2] != "total"
        assert metric.sentence.endswith(".")
        if metric.kind == "histogram":
            assert metric.name.endswith(("_seconds", "_ratio"))
        assert not {"job", "user", "name", "id", "node", "account"} & set(metric.labels)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def full(partitions):
    """An exporter with many partitions, and more values of every other label than it keeps."""
    exporter = PrometheusExporter([*METRICS])
    for served in exporter._served:  # noqa: SLF001
        metric = served.metric
        names = [f"value-{n}" for n in range(partitions if metric.labels == ("partition",) else 100)]
        if len(metric.known) == metric.most:
            continue
        served.take([((name,) * len(metric.labels), 1.0) for name in names] if metric.labels else [((), 1.0)])
    return exporter


@pytest.mark.parametrize("partitions", [MAX_PARTITION_SERIES, 500])
def test_exports_at_most_600_series(partitions):
    series = scrape(full(partitions))
    own = [name for name, _ in series if name.startswith("cpsched_")]
    assert len(series) <= 600
    assert len(own) <= sum(metric.max_series for metric in METRICS)
    if partitions > MAX_PARTITION_SERIES:
        assert len(own) == sum(metric.max_series for metric in METRICS)


def a_gauge(merged):
    row = MetricFamily("gauge", "cpsched_test", "Text.", lambda c: [(("a",), 1.0), (("b",), 5.0), (("c",), 3.0)], ("x",), 1,  # noqa: E501
                 merged=merged)  # fmt: skip
    exporter = PrometheusExporter([row])
    exporter(CycleReportWithOutcomes(a_cycle_report()))
    return scrape(exporter)


def test_merges_labels_beyond_bound():
    found = [a_gauge(merged)["cpsched_test", (("x", "other"),)] for merged in (float.__add__, max)]
    assert [*found, a_gauge(max)["cpsched_test", (("x", "a"),)]] == [8, 5, 1]


@pytest.mark.parametrize("submits_s", [(20, 60), (60, 20)])
def test_oldest_pending_job_counts_at_any_position(submits_s):
    waiting = [a_job(id, submit_s=submit_s, queue="a") for id, submit_s in enumerate(submits_s)]
    found = after(observation=FakeCluster(now_s=100).observe(), snapshot=a_snapshot(a_cluster(), waiting))
    assert found["cpsched_oldest_pending_seconds", partition("a")] == 80


@pytest.mark.parametrize(
    ("mode", "paused", "required"), [("control", "", "yes"), ("shadow", "by root", "yes"), ("shadow", "", "no")]
)
def test_exports_whether_mode_requires_failed_check(mode, paused, required):
    checks = [ReadinessCheck("plugin", False, "", required=False), ReadinessCheck("clock", False, "", required=True)]
    series = after(mode=mode, checks=checks, paused=paused)
    found = {labels: value for (name, labels), value in series.items() if name == "cpsched_check_ok"}
    assert found == {
        (("check", "plugin"), ("required", "no")): 0,
        (("check", "clock"), ("required", required)): 0,
    }


def test_each_check_has_its_own_series():
    checks = [ReadinessCheck(f"check {at}", at != 40, "") for at in range(41)]
    assert after(checks=checks)["cpsched_check_ok", (("check", "check 40"), ("required", "yes"))] == 0


def test_exports_time_of_checks_and_forgets_removed_ones():
    exporter = PrometheusExporter()

    def cycle(*checks):
        exporter(
            CycleReportWithOutcomes(a_cycle_report(checks=[ReadinessCheck(n, ok, "") for n, ok in checks] or None))
        )
        return scrape(exporter)

    plugin = ("cpsched_check_ok", (("check", "plugin"), ("required", "yes")))
    assert cycle(("plugin", False), ("clock", True))[plugin] == 0
    assert cycle()[plugin] == 0, "not checked in this cycle"
    assert cycle(("clock", True))[plugin] == 1


def test_counts_fallback_decision():
    exporter = PrometheusExporter()
    decision = Decision(NO_STARTS, Effort("easy", considered=1))
    exporter(CycleReportWithOutcomes(a_cycle_report(decision=decision, fallback=True, overdue=2, gap_s=3.5)))
    found = scrape(exporter)
    assert found["cpsched_decision_fallbacks_total", ()] == found["cpsched_fallback", ()] == 1
    assert found["cpsched_cycle_late_seconds_total", ()] == 3.5
    exporter(CycleReportWithOutcomes(a_cycle_report(2, decision=decision)))
    assert scrape(exporter)["cpsched_fallback", ()] == 0


def solved(status, solver_s=0.1, objective=None, bound=None):
    """What an exporter serves after one decision of a solver."""
    effort = Effort("solver", 5, 70, status, objective, bound, solver_s)
    return after(decision=Decision(NO_STARTS, effort))


@pytest.mark.parametrize(
    ("status", "solver_s", "searches", "hits"),
    [("optimal", 0.1, 1, 0), ("feasible", 0.1, 1, 1), ("unverified", 0.1, 1, 1), ("unverified", 0.0, 0, 0)],
)
def test_search_without_proof_hit_its_limit(status, solver_s, searches, hits):
    found = solved(status, solver_s)
    names = ("cpsched_decision_searches_total", "cpsched_decision_limit_hits_total", "cpsched_decision_variables_sum")
    assert [found[name, ()] for name in names] == [searches, hits, 70]


@pytest.mark.parametrize(("objective", "bound", "gap"), [(100, 80, 0.2), (100, 100, 0), (0, 0, 0), (10, 20, 0)])
def test_gap_is_share_of_objective(objective, bound, gap):
    found = solved("feasible", objective=objective, bound=bound)
    assert found["cpsched_decision_gap_ratio_count", ()] == 1
    assert found["cpsched_decision_gap_ratio_sum", ()] == pytest.approx(gap)
    assert solved("feasible", objective=5.0)["cpsched_decision_gap_ratio_count", ()] == 0


def test_ratios_to_easy_and_area_weight_are_gauges():
    effort = Effort("searched", 5, ratios={"large": 0.98, "waits": 0.71, "area": 1.5})
    exporter = PrometheusExporter()
    exporter(CycleReportWithOutcomes(a_cycle_report(decision=Decision(NO_STARTS, effort))))
    exporter(CycleReportWithOutcomes(a_cycle_report(2)))
    found = scrape(exporter)
    ratios = {measure: found["cpsched_easy_ratio", (("measure", measure),)] for measure in ("large", "waits")}
    assert (ratios, found["cpsched_area_weight", ()]) == ({"large": 0.98, "waits": 0.71}, 1.5)


@pytest.mark.parametrize(
    ("estimate_s", "run_s", "direction", "log2"),
    [(100, 400, "longer", 2), (400, 100, "shorter", 2), (7, 7, "shorter", 0)],
)
def test_prediction_error_is_log_ratio_with_direction(estimate_s, run_s, direction, log2):
    exporter = PrometheusExporter()
    exporter(CycleReportWithOutcomes(a_cycle_report(), predicted=(RunTimeOutcome(estimate_s, run_s),)))
    found = scrape(exporter)
    assert found["cpsched_prediction_error_log2_ratio_sum", (("direction", direction),)] == pytest.approx(log2)
    assert found["cpsched_prediction_error_log2_ratio_count", (("direction", direction),)] == 1


@pytest.mark.parametrize(("start_s", "direction"), [(160, "late"), (40, "early"), (100, "early")])
def test_start_delay_is_time_with_direction(start_s, direction):
    exporter = PrometheusExporter()
    exporter(CycleReportWithOutcomes(a_cycle_report(), kept=(StartTimeOutcome(100, start_s),)))
    found = scrape(exporter)
    assert found["cpsched_start_time_error_seconds_sum", (("direction", direction),)] == abs(start_s - 100)
    counts = {
        name: found["cpsched_start_time_error_seconds_count", (("direction", name),)] for name in ("late", "early")
    }
    assert counts == {"late": 0, "early": 0} | {direction: 1}


def test_counts_failed_cycle_only_as_failure(bridge_at, watch):
    cluster = FakeCluster.of(a_job(1, per_unit=4), a_job(2, per_unit=100, queue="q"))
    bridge = bridge_at(cluster, listeners=(watch,), cycles=1)
    success = scrape(watch.exporter)["cpsched_last_success_timestamp_seconds", ()]
    bridge.pace.at_s += 5
    cluster.fail("observe", BackendTimeout("no answer"))
    bridge.cycle()
    found = scrape(watch.exporter)
    expected = {
        ("cpsched_cycles_total", (("result", "backend_timeout"),)): 1,
        ("cpsched_last_success_timestamp_seconds", ()): success,
        ("cpsched_events_total", (("kind", "backend_timeout"),)): 1,
        ("cpsched_queued_jobs", partition("q")): 1,  # what was known of the queue stays
    }
    assert {key: found[key] for key in expected} == expected


def test_counts_job_that_ended_unseen_as_started(bridge_at, watch):
    cluster = FakeCluster()
    bridge = bridge_at(cluster, listeners=(watch,), mode="shadow", cycles=1)
    cluster.submit(a_job(1))
    cluster.jobs[1].start_s, cluster.jobs[1].end_s = 30, 35
    bridge.cycle()
    found = scrape(watch.exporter)
    assert found["cpsched_started_jobs_total", ()] == found["cpsched_ended_jobs_total", ()] == 1
    assert np.isclose(found["cpsched_job_wait_seconds_sum", partition("none")], 30)


def test_counts_unusable_objects_by_kind():
    odd = tuple(UnusableObject(kind, "x", "f", "unreadable") for kind in ("node", "node", "qos"))
    found = after(observation=an_observation(unusable=odd))
    counts = {kind: found["cpsched_unusable_objects", (("kind", kind),)] for kind in OBJECT_KINDS}
    assert counts == {"node": 2, "partition": 0, "reservation": 0, "job": 0, "association": 0, "qos": 1}


def test_exports_file_sizes_and_child_restarts(bridge_at):
    around = [BridgeStatusFacts(1.0, 10, 20, child_starts=1), BridgeStatusFacts(1.0, 11, 21, child_starts=3)]
    watch = StatusApplication(Settings(), lambda: around.pop(0))
    bridge = bridge_at(FakeCluster(), listeners=(watch,), cycles=1)
    assert scrape(watch.exporter)["cpsched_child_restarts_total", ()] == 0
    bridge.cycle()
    found = scrape(watch.exporter)
    assert (found["cpsched_child_restarts_total", ()], found["cpsched_journal_size_bytes", ()]) == (2, 11)
    assert found["cpsched_ledger_size_bytes", ()] == 21
