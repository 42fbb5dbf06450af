"""Stored results of a study: complete or absent whatever the disk does, and reused only while valid."""

import hashlib
import json

import pytest

from cpsched_sim.errors import InputError
from cpsched_sim.experiments import case_store
from cpsched_sim.study.case_execution import StudyCaseOutcome, failed_result, limit_exceeded_result
from cpsched_sim.study.result_store import StoredCaseResult, StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_runner import run_missing_cases
from tests.unit.sim.study.studies import words, written
from tests.unit.sim.study.test_study_runner import Here, results_in

ENDED = {"outcome": "ended", "why": "", "figures": {"bsld": 1.0}}
MADE = {"wall_s": 1.0}


def stored(store, case, result, made=MADE):
    """Store a result without a run."""
    store.cases.store(case.digest, StoredCaseResult.from_outcome(case, StudyCaseOutcome(result, made)))


@pytest.fixture
def store(tmp_path):
    return StudyResultStore(tmp_path / "out")


@pytest.fixture
def build(tmp_path):
    """Return the cases of a study with these keys."""
    written(tmp_path)
    return lambda **more: build_study_cases(words(**more), tmp_path)


@pytest.fixture
def campaign(build):
    return build()


@pytest.mark.parametrize("room", range(8))
def test_full_disk_leaves_only_complete_results(tmp_path, build, store, monkeypatch, room):
    """Four cases of two files each: the schedule, and last the result."""
    campaign, real, left = build(jobs=True), case_store.write_atomically, [room]

    def full(path, content):
        if left[0] == 0:
            raise InputError(f"{path}: cannot be written: No space left on device")
        left[0] -= 1
        real(path, content)

    monkeypatch.setattr(case_store, "write_atomically", full)
    with pytest.raises(InputError, match="No space left"):
        run_missing_cases(campaign, store, Here())
    monkeypatch.undo()
    results, schedules = store.cases.stored_keys(), store.schedules.stored_keys()
    assert set(results) <= set(schedules), "what says that a case is finished comes last"
    assert len(store.load_earlier_results(campaign).done) == room // 2
    run_missing_cases(campaign, store, rest := Here())
    assert len(rest.decided) == 4 - room // 2
    run_missing_cases(campaign, StudyResultStore(tmp_path / "other"), Here())
    assert results_in(tmp_path / "out") == results_in(tmp_path / "other")


def test_schedules_requested_later_are_recomputed(campaign, build, store):
    run_missing_cases(campaign, store, Here())
    with_schedules = build(jobs=True)
    assert store.load_earlier_results(with_schedules).done == {}
    run_missing_cases(with_schedules, store, Here())
    assert len(store.load_earlier_results(with_schedules).done) == 4


@pytest.mark.parametrize(
    ("limits", "again", "done"),
    [
        ({"minutes": 1, "memory_mib": 500}, False, 4),
        ({"minutes": 2, "memory_mib": 500}, False, 3),
        ({"minutes": 0.5, "memory_mib": 501}, False, 3),
        ({}, False, 2),
        ({"minutes": 1, "memory_mib": 500}, True, 1),
    ],
)
def test_case_over_limit_waits_for_higher_limit(build, store, limits, again, done):
    ends = [limit_exceeded_result(minutes=1.0), limit_exceeded_result(memory_mib=500), failed_result("why"), ENDED]
    for case, result in zip(build(limits={"minutes": 1}).cases, ends, strict=True):
        stored(store, case, result)
    assert len(store.load_earlier_results(build(limits=limits), again=again).done) == done


def test_result_of_later_version_is_ignored(campaign, store):
    stored(store, campaign.cases[0], {"outcome": "suspended", "why": ""})
    stored(store, campaign.cases[1], {**ENDED, "later": [1]}, {**MADE, "later": {}})
    assert list(store.load_earlier_results(campaign).done) == [campaign.cases[1].digest]


@pytest.mark.parametrize("text", ["", "{", "3", "[]", "{}", '{"inputs": {}, "result": 3}', "[" * 100_000])
def test_invalid_result_is_ignored(campaign, store, text):
    for case in campaign.cases[:2]:
        stored(store, case, ENDED)
    store.cases.path(campaign.cases[0].digest).write_text(text)
    assert list(store.load_earlier_results(campaign).done) == [campaign.cases[1].digest]


def test_writes_cases_and_exclusions_of_study(tmp_path, build, store):
    campaign = build(exclude=[{"dispatcher": "easy", "load": 2.0, "because": "too dense"}])
    store.write_case_list(campaign)
    content = json.loads((tmp_path / "out" / "study.json").read_bytes())
    assert (content["title"], content["excluded"]) == ("four jobs", {"too dense": 1})
    assert [case["digest"] for case in content["cases"]] == [case.digest for case in campaign.cases]


def test_reports_changed_but_not_new_traces(tmp_path, campaign, build, store):
    store.write_case_list(campaign)
    traces = {"four": {"file": "four.swf"}, "more": {"file": "four.swf"}}
    more = build(traces=traces, grids=[{"traces": ["four", "more"], "dispatchers": ["easy"]}])
    assert store.list_changed_traces(more) == []
    trace = tmp_path / "four.swf"
    trace.write_text(f"{trace.read_text()}; changed\n")
    assert store.list_changed_traces(build()) == [
        "four: the trace has changed since the last run in this folder, so its cases run again"
    ]
    (tmp_path / "out" / "study.json").write_text("[]")
    assert store.list_changed_traces(build()) == []


def test_reads_wall_times_despite_broken_files(campaign, store):
    stored(store, campaign.cases[0], ENDED)
    store.cases.path("0").write_text("{")
    stored(store, campaign.cases[1], ENDED, {"wall_s": None})
    assert store.earlier_wall_times_s() == [1.0]


def test_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"), StudyResultStore(tmp_path / "file" / "out").lock_exclusively():
        pass


def test_result_digest_is_in_metadata(campaign, store):
    case = campaign.cases[0]
    stored(store, case, ENDED)
    content = json.dumps({"inputs": case.inputs, "result": ENDED}, sort_keys=True, indent=1) + "\n"
    assert store.cases.find(case.digest).made["result_sha256"] == hashlib.sha256(content.encode()).hexdigest()


def test_edited_figure_is_recomputed_and_reported(campaign, store):
    for case in campaign.cases:
        stored(store, case, {**ENDED, "figures": {"bsld": 3.0}})
    digests = {case.digest for case in campaign.cases}
    before = store.load_earlier_results(campaign)
    assert (before.done.keys(), before.altered) == (digests, [])
    edited = campaign.cases[2].digest
    path = store.cases.path(edited)
    path.write_text(path.read_text().replace("3.0", "2.0"))
    after = store.load_earlier_results(campaign)
    assert (after.done.keys(), after.altered) == (digests - {edited}, [edited])
