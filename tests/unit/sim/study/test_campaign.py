"""A study's file: every mistake by line and field, every case under the digest of all that it depends on."""

import pytest
import yaml

from cpsched_sim.errors import InvalidFile
from cpsched_sim.study.campaign import TRACES, campaign_of, read_campaign
from cpsched_sim.study.words import EXAMPLE
from tests.unit.sim.study.studies import plugin, words, written


def grid(**axes):
    return {"traces": ["four"], "dispatchers": ["easy"], **axes}


def digests(campaign):
    return {
        (case.labels["dispatcher"], case.labels["seed"], case.labels["load"]): case.digest for case in campaign.cases
    }


def test_a_grid_is_all_combinations_and_a_list_names_its_cases(tmp_path):
    named = {"name": "alone", "trace": "four", "dispatcher": "fcfs"}
    found = read_campaign(written(tmp_path, cases=[named]))
    assert [(case.labels["policy"], case.labels["load"], case.labels["case"]) for case in found.cases] == [
        ("easy / walltime", 1.0, ""), ("list-sjf / walltime", 1.0, ""), ("easy / walltime", 2.0, ""),
        ("list-sjf / walltime", 2.0, ""), ("fcfs / walltime", 1.0, "alone"),
    ]  # fmt: skip


def test_the_example_is_a_study_that_needs_no_trace(tmp_path):
    found = campaign_of(yaml.safe_load(EXAMPLE), tmp_path)
    assert len(found.cases) == 16
    assert found.excluded == {"shown by the other two already": 3}


@pytest.mark.parametrize(
    ("more", "line", "told"),
    [
        ({"limits": {"minutes": -1}}, 15, "limits.minutes: -1: must be above 0"),
        ({"exclude": [{"dispatcher": "easzy", "because": "why"}]}, 15, "exclude.0: exclusion: excludes no case"),
        ({"exclude": [{"because": "why"}]}, 15, "exclude.0: dict: must name one axis at least"),
        ({"grid": []}, 14, "grid: list: no such setting; did you mean 'grids'?"),
        ({"report": {"metrics": ["bsdl"]}}, 16, "report.metrics.0: bsdl: unknown metric 'bsdl'"),
        ({"cases": [{"name": "x", "trace": "five", "dispatcher": "easy"}]}, 16, "cases.0.trace: five: must be one of"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "essy"}]}, 17, "cases.0.dispatcher: essy / walltime"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "easy effort=3"}]}, 17, "unknown parameter"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "easy effort"}]}, 17, "NAME SETTING=VALUE"),
    ],
)
def test_a_mistake_is_told_by_file_line_field_and_rule(tmp_path, more, line, told):
    path = written(tmp_path, **more)
    with pytest.raises(InvalidFile) as caught:
        read_campaign(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert told in str(caught.value)


def test_a_trace_that_is_not_there_or_not_the_same_is_told_by_its_line(tmp_path):
    path = written(tmp_path, traces={"four": {"file": "four.swf", "sha256": "0" * 64}})
    with pytest.raises(InvalidFile, match=r"study.yaml:5: traces.four.sha256: 0+: is not the digest of"):
        read_campaign(path)
    (tmp_path / "four.swf").unlink()
    with pytest.raises(InvalidFile, match=r"study.yaml:4: traces.four.file: four.swf: there is no such file"):
        read_campaign(path)


def test_a_trace_is_found_in_the_folder_of_traces_too(tmp_path, monkeypatch):
    written(tmp_path / "traces")
    monkeypatch.setenv(TRACES, str(tmp_path / "traces"))
    assert len(campaign_of(words(), tmp_path).cases) == 4


def test_seeds_are_other_replays_where_somebody_draws_alone(tmp_path):
    written(tmp_path)
    found = campaign_of(words(grids=[grid(dispatchers=["easy", "lookahead"], seeds=[0, 1])]), tmp_path)
    by = digests(found)
    assert by["easy", 0, 1.0] == by["easy", 1, 1.0]
    assert by["lookahead", 0, 1.0] != by["lookahead", 1, 1.0]
    assert len(found.distinct) == 3


def test_a_digest_follows_the_trace_the_load_and_the_settings_and_not_its_name(tmp_path):
    written(tmp_path)
    before = digests(campaign_of(words(), tmp_path))
    assert len(set(before.values())) == 4
    renamed = words(dispatchers={"mine": "easy"}, grids=[grid(dispatchers=["mine"])])
    assert digests(campaign_of(renamed, tmp_path))["mine", 0, 1.0] == before["easy", 0, 1.0]
    set_ = words(grids=[grid(dispatchers=["easy allocation=best-fit"])])
    assert digests(campaign_of(set_, tmp_path))["easy allocation=best-fit", 0, 1.0] not in before.values()
    with (tmp_path / "four.swf").open("a") as file:
        file.write("; another comment\n")
    assert not set(digests(campaign_of(words(), tmp_path)).values()) & set(before.values())


def test_a_changed_dispatcher_changes_its_own_digests_alone_also_through_what_it_imports(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    study = words(grids=[grid(dispatchers=["easy", plugin(tmp_path)])])
    before = digests(campaign_of(study, tmp_path))
    plugin(tmp_path, body="pass  # another one")
    after = digests(campaign_of(study, tmp_path))
    assert after["easy", 0, 1.0] == before["easy", 0, 1.0]
    assert after["mine:Own", 0, 1.0] != before["mine:Own", 0, 1.0]
    plugin(tmp_path, order="reversed(range(len(snapshot)))")
    assert digests(campaign_of(study, tmp_path))["mine:Own", 0, 1.0] != before["mine:Own", 0, 1.0]


def test_whoever_decides_by_the_clock_is_told(tmp_path):
    written(tmp_path)
    found = campaign_of(words(grids=[grid(dispatchers=["pcp20", "pcp20 effort=300", "easy"])]), tmp_path)
    assert [case.by_clock for case in found.cases] == [True, False, False]
    assert found.notes[0].startswith("pcp20: decides by the clock")


def test_windows_are_parts_one_after_the_other(tmp_path):
    written(tmp_path)
    found = campaign_of(words(grids=[grid(windows=["whole", {"days": 7, "from_day": 1, "count": 2}])]), tmp_path)
    assert [case.labels["window"] for case in found.cases] == ["whole", "days 1-8", "days 8-15"]
    assert found.cases[2].inputs["window"] == [8.0, 7.0]
