"""A study file: every error has a line and a field, and every case a digest of all its inputs."""

import re

import pytest
import yaml

from cpsched_sim.errors import InvalidFile
from cpsched_sim.study import study_cases
from cpsched_sim.study.case_execution import execute_case
from cpsched_sim.study.study_cases import TRACES_VARIABLE, build_study_cases, load_stored_study_cases, read_study
from cpsched_sim.study.study_schema import EXAMPLE_STUDY
from tests.unit.sim.study.studies import plugin, words, written


def grid(**axes):
    return {"traces": ["four"], "dispatchers": ["easy"], **axes}


def digests(campaign):
    return {
        (case.labels["dispatcher"], case.labels["seed"], case.labels["load"]): case.digest for case in campaign.cases
    }


@pytest.fixture
def build(tmp_path):
    """Return the cases of a study next to its trace, with these keys."""
    written(tmp_path)
    return lambda **more: build_study_cases(words(**more), tmp_path)


def labels(campaign, name):
    return [case.labels[name] for case in campaign.cases]


def test_grid_is_product_and_list_names_cases(tmp_path):
    named = {"name": "alone", "trace": "four", "dispatcher": "fcfs"}
    found = read_study(written(tmp_path, cases=[named]))
    assert [(case.labels["policy"], case.labels["load"], case.labels["case"]) for case in found.cases] == [
        ("easy / walltime", 1.0, ""), ("list-sjf / walltime", 1.0, ""), ("easy / walltime", 2.0, ""),
        ("list-sjf / walltime", 2.0, ""), ("fcfs / walltime", 1.0, "alone"),
    ]  # fmt: skip


def test_trace_may_be_given_by_its_file_alone(tmp_path):
    named, plain = (read_study(written(tmp_path, traces={"four": each})) for each in ({"file": "four.swf"}, "four.swf"))
    assert digests(named) == digests(plain)


def test_example_is_study_without_trace(tmp_path):
    found = build_study_cases(yaml.safe_load(EXAMPLE_STUDY), tmp_path)
    assert len(found.cases) == 16
    assert found.excluded == {"covered by the other two": 3}


@pytest.mark.parametrize(
    ("more", "line", "told"),
    [
        ({"limits": {"minutes": -1}}, 15, "limits.minutes: -1: must be above 0"),
        ({"exclude": [{"dispatcher": "easzy", "because": "why"}]}, 15, "exclude.0: exclusion: excludes no case"),
        ({"exclude": [{"because": "why"}]}, 15, "exclude.0: a mapping: must set at least one axis"),
        ({"grid": []}, 14, "grid: a list: no such setting; did you mean 'grids'?"),
        ({"report": {"metrics": ["bsdl"]}}, 16, "report.metrics.0: bsdl: unknown metric 'bsdl'"),
        (
            {"report": {"baseline": "easi / walltime"}},
            15,
            "report.baseline: easi / walltime: must be a policy of the s",
        ),
        ({"cases": [{"name": "x", "trace": "five", "dispatcher": "easy"}]}, 16, "cases.0.trace: five: must be one of"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "essy"}]}, 17, "cases.0.dispatcher: essy / walltime"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "easy effort=3"}]}, 17, "unknown parameter"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": "easy effort"}]}, 17, "NAME SETTING=VALUE"),
        ({"cases": [{"name": "x", "trace": "four", "dispatcher": " "}]}, 17, "NAME SETTING=VALUE"),
        (
            {"cases": [{"name": "x", "trace": "four", "dispatcher": "lookahead seed=1 seed=2"}]},
            17,
            "must set seed only once",
        ),
    ],
)
def test_error_names_file_line_field_and_rule(tmp_path, more, line, told):
    path = written(tmp_path, **more)
    with pytest.raises(InvalidFile) as caught:
        read_study(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("axis", "values", "told"),
    [
        (
            "windows",
            [{"day": 2}],
            r"windows.0.part.days: nothing: must be given; "
            r"also wrong: line 1: grids.0.windows.0.part.day: 2: no such setting",
        ),
        ("windows", [{"days": -2}], r"windows.0.part.days: -2: must be above 0"),
        ("windows", [{"jobs": 2}], r"windows.0.sequence.first: nothing: must be given"),
        ("windows", [{"jobs": 2, "first": [-1]}], r"windows.0.sequence.first.0: -1: must be at least 0"),
        ("windows", ["hole"], r"windows.0.whole: hole: must be 'whole'"),
        ("windows", [7], r"windows.0.whole: 7: must be 'whole'"),
        ("dispatchers", [], r"dispatchers: a list: must not be empty"),
        ("seeds", None, r"seeds: nothing: must be a list"),
        ("loads", 1.5, r"loads: 1.5: must be a list"),
        ("policies", "site.yaml", r"policies: site.yaml: must be a list"),
    ],
)
def test_invalid_axis_is_reported(build, axis, values, told):
    with pytest.raises(InvalidFile, match=rf"grids.0.{told}$"):
        build(grids=[grid(**{axis: values})])


def test_missing_or_changed_trace_names_its_line(tmp_path):
    path = written(tmp_path, traces={"four": {"file": "four.swf", "sha256": "0" * 64}})
    with pytest.raises(InvalidFile, match=r"study.yaml:5: traces.four.sha256: 0+: is not the digest of"):
        read_study(path)
    (tmp_path / "four.swf").unlink()
    with pytest.raises(InvalidFile, match=r"study.yaml:4: traces.four.file: four.swf: is neither next to the study"):
        read_study(path)


def test_non_trace_file_names_its_line(tmp_path):
    path = written(tmp_path)
    (tmp_path / "four.swf").write_text("no trace\n")
    with pytest.raises(InvalidFile, match=r"study.yaml:3: traces.four: four.swf: .*seems to be .*, not a trace"):
        read_study(path)


def test_finds_trace_next_to_study_or_in_trace_folder(tmp_path, monkeypatch):
    written(tmp_path / "traces")
    monkeypatch.setenv(TRACES_VARIABLE, str(tmp_path / "traces"))
    for folder in (tmp_path / "traces", tmp_path):
        assert build_study_cases(words(), tmp_path).cases[0].task["trace"]["file"] == str(folder / "four.swf")
        written(tmp_path)


def test_seeds_make_different_replays_only_if_random(build):
    found = build(grids=[grid(dispatchers=["easy", "lookahead", "lookahead seed=7"], seeds=[0, 1])])
    by = digests(found)
    assert by["easy", 0, 1.0] == by["easy", 1, 1.0]
    assert by["lookahead", 0, 1.0] != by["lookahead", 1, 1.0]
    assert len(found.distinct_cases) == 4
    assert {case.inputs["dispatcher_settings"].get("seed") for case in found.cases[4:]} == {"7"}


def test_digest_depends_on_contents_not_on_name(tmp_path, build, monkeypatch):
    before = digests(build())
    assert len(set(before.values())) == 4
    renamed = build(dispatchers={"mine": "easy"}, grids=[grid(dispatchers=["mine"])])
    assert digests(renamed)["mine", 0, 1.0] == before["easy", 0, 1.0]
    set_ = build(grids=[grid(dispatchers=["easy allocation=best-fit"])])
    assert digests(set_)["easy allocation=best-fit", 0, 1.0] not in before.values()
    with (tmp_path / "four.swf").open("a") as file:
        file.write("; another comment\n")
    commented = digests(build()).values()
    assert not set(commented) & set(before.values())
    monkeypatch.setattr(study_cases, "code_digest", lambda: "other")
    assert not set(digests(build()).values()) & set(commented)


def test_changed_dispatcher_or_import_changes_only_its_digests(tmp_path, build, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    grids = [grid(dispatchers=["easy", plugin(tmp_path)])]
    before = digests(build(grids=grids))
    for change in ({"body": "x = 1"}, {"order": "reversed(range(len(snapshot.queue)))"}):
        plugin(tmp_path, **change)
        after = digests(build(grids=grids))
        assert {of[0]: after[of] == before[of] for of in after} == {"easy": True, "mine:Own": False}


SYSTEM = """
name: mine
resources: [cores]
node_types: {{ thin: {{ count: {nodes}, each: {{ cores: 4 }} }} }}
units: {{ rule: cores }}
"""


def test_digest_depends_on_file_contents_not_on_names(tmp_path, build):
    system, policy, waits = tmp_path / "mine.yaml", tmp_path / "site.yaml", tmp_path / "waits.json"
    dump, priority = tmp_path / "qos.txt", f"prb ewt_file={waits}"
    site = "accounts: {{ all: {{ users: [a] }} }}\nqos: {{ high: {{ priority: {} }} }}\ndumps: {{ qos: qos.txt }}\n"

    def digest(**axes):
        return build(grids=[grid(**axes)]).cases[0].digest

    def all_three(system_name="mine.yaml", policy_name="site.yaml"):
        plain = digest()
        found = digest(systems=[system_name]), digest(policies=[policy_name]), digest(dispatchers=[priority])
        assert len({plain, *found}) == 4
        return found

    system.write_text(SYSTEM.format(nodes=4))
    policy.write_text(site.format(1))
    dump.write_text("Name|Priority\nnormal|0\n")
    waits.write_text('{"1": 60}')
    before = all_three()
    policy.write_text("# a comment more\n" + site.format(1))
    assert all_three() == before
    for old in (system, policy):
        old.rename(old.with_name(f"renamed-{old.name}"))
    assert all_three("renamed-mine.yaml", "renamed-site.yaml") == before
    (tmp_path / "renamed-mine.yaml").write_text(SYSTEM.format(nodes=5))
    (tmp_path / "renamed-site.yaml").write_text(site.format(2))
    waits.write_text('{"1": 61}')
    after = all_three("renamed-mine.yaml", "renamed-site.yaml")
    assert all(one != other for one, other in zip(before, after, strict=True))
    dump.write_text("Name|Priority\nnormal|7\n")
    assert digest(policies=["renamed-site.yaml"]) != after[1]


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ({"systems": ["nowhere.yaml"]}, "grids.0.systems: nowhere.yaml: "),
        ({"policies": ["nowhere.yaml"]}, "grids.0.policies: nowhere.yaml: "),
        ({"dispatchers": ["prb ewt_file=waits.json"]}, "ewt_file=waits.json: must be the absolute path"),
        ({"dispatchers": ["prb ewt_file=/nowhere.json"]}, "ewt_file=/nowhere.json: must be the absolute path"),
    ],
)
def test_missing_referenced_file_is_reported(tmp_path, build, axes, told):
    (tmp_path / "waits.json").write_text("{}")
    with pytest.raises(InvalidFile, match=re.escape(told)):
        build(grids=[grid(**axes)])


def test_reports_dispatchers_with_time_limits(build):
    found = build(grids=[grid(dispatchers=["pcp20", "pcp20 effort=300", "easy"])])
    assert [case.by_clock for case in found.cases] == [True, False, False]
    assert found.notes[0].startswith("pcp20: has a time limit")


def test_windows_are_consecutive_and_sequences_begin_at_each_index(build):
    windows = ["whole", {"days": 7, "from_day": 1, "count": 2}, {"jobs": 2, "first": [0, 2]}]
    found = build(grids=[grid(windows=windows)])
    assert labels(found, "window") == ["whole", "days 1-8", "days 8-15", "jobs 0-1", "jobs 2-3"]
    assert [case.inputs["window"] for case in found.cases[2::2]] == [[8.0, 7.0], {"first": 2, "jobs": 2}]


def test_each_seed_gives_different_lublin_workload():
    made = {"generate": "lublin", "max_jobs": 20, "processors": 64, "load": 2.0}
    grid = {"traces": ["made"], "dispatchers": ["easy"], "seeds": [0, 1]}
    one, two = build_study_cases({"title": "t", "traces": {"made": made}, "grids": [grid]}).cases
    assert one.inputs["trace"] == {**made, "seed": 0}
    schedules = [execute_case({**case.task, "memory_mib": None}).result["schedule_sha256"] for case in (one, one, two)]
    assert schedules[0] == schedules[1] != schedules[2]


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        ({"generate": "lublin", "max_jobs": 20}, "processors is required with generate: lublin"),
        ({"generate": "eurora", "days": 1, "processors": 64}, "processors is required with generate: lublin"),
        ({"generate": "lublin", "processors": 64}, "generate: lublin requires max_jobs"),
        ({"generate": "lublin", "processors": 64, "max_jobs": 2, "days": 1}, "days is required with generate: eurora"),
        ({"generate": "eurora", "days": 1, "recipe": "none"}, "recipe and optional require file"),
        ({}, "must have either file or generate"),
        ({"file": "a", "generate": "eurora", "days": 1}, "must have either file or generate"),
        ({"file": "a", "load": 2.0}, "load requires generate"),
        ({"file": "a", "days": 2}, "days is required with generate"),
        ({"file": "a", "sha256": "abc"}, "sha256"),
        ({"file": "nowhere.swf", "recipe": "curl it"}, r"is neither next to the study.*; to obtain it: curl it"),
    ],
)
def test_trace_is_either_file_or_generated(trace, told):
    with pytest.raises(InvalidFile, match=told):
        build_study_cases({"title": "t", "traces": {"four": trace}, "grids": [grid()]})


def test_first_of_two_equal_exclusions_counts(build):
    rules = [{"dispatcher": "easy", "because": "one"}, {"dispatcher": "easy", "load": 2.0, "because": "two"}]
    found = build(exclude=rules)
    assert (found.excluded, len(found.cases)) == ({"one": 2, "two": 0}, 2)


def test_case_names_are_unique(build):
    case = {"name": "x", "trace": "four", "dispatcher": "easy"}
    with pytest.raises(InvalidFile, match=r"cases.1.name: x: must occur only once"):
        build(cases=[case, case])


def test_stored_study_finds_files_of_original(tmp_path):
    path, out = written(tmp_path / "home"), tmp_path / "out"
    out.mkdir()
    (out / "study.yaml").write_bytes(path.read_bytes())
    (out / "study.json").write_text(f'{{"folder": "{path.parent}"}}')
    assert len(load_stored_study_cases(out / "study.yaml", out).cases) == 4
    (out / "study.json").write_text("{")
    with pytest.raises(InvalidFile, match="is neither next to the study"):
        load_stored_study_cases(out / "study.yaml", out)


def test_rejects_policies_with_same_label(build):
    names = {"dispatchers": {"easy / a": "easy"}, "predictors": {"a / b": "walltime", "b": "walltime"}}
    alone, other = grid(dispatchers=["easy / a"], predictors=["b"]), grid(predictors=["a / b"])
    assert labels(build(grids=[alone], **names), "policy") == ["easy / a / b"]
    with pytest.raises(InvalidFile, match="easy with a / b: must not have the same label in tables as easy / a with b"):
        build(grids=[alone, other], **names)
