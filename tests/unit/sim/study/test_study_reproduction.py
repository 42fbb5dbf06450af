"""A changed digit is found in any part of the results."""

import hashlib
import json

import pytest

from cpsched_sim.errors import InputError
from cpsched_sim.experiments.task_runner import TaskFailure
from cpsched_sim.study.result_store import StudyResultStore, encode_json
from cpsched_sim.study.study_cases import read_study
from cpsched_sim.study.study_report import write_study_outputs
from cpsched_sim.study.study_runner import run_missing_cases, verify_study_results
from tests.unit.sim.study.studies import written
from tests.unit.sim.study.test_study_runner import Here


@pytest.fixture
def study(tmp_path):
    """The path of a study that was run, and its folder of results."""
    path = written(tmp_path)
    write_study_outputs(run_missing_cases(read_study(path), StudyResultStore(tmp_path / "out"), Here()))
    return path, tmp_path / "out"


def checked(path, source, sample=4):
    return verify_study_results(read_study(path), source, Here(), sample)


def test_unchanged_results_are_the_same(study):
    path, out = study
    for source in (out, out / "results.jsonl"):
        found = checked(path, source)
        assert (found.read, found.decided, found.same, found.differs, found.other) == (4, 4, 4, [], [])


def edit_case(out, change, forged=False):
    """Change the content of a case; `forged`: and the digest that it was kept with."""
    case = sorted((out / "cases").iterdir())[0]
    content = json.loads(case.read_bytes())
    change(content)
    if forged:
        facts = encode_json({"inputs": content["inputs"], "result": content["result"]})
        content["made"]["result_sha256"] = hashlib.sha256(facts).hexdigest()
    case.write_bytes(encode_json(content))
    return case


def another_figure(content):
    content["result"]["figures"]["bsld"] += 1e-9


def another_load(content):
    content["inputs"]["load"] = 3.0


def truncate_case(out):
    case = sorted((out / "cases").iterdir())[0]
    case.write_bytes(case.read_bytes()[:-9])
    return case


@pytest.mark.parametrize(
    "damage",
    [
        lambda out: edit_case(out, another_figure),
        lambda out: edit_case(out, another_load, forged=True),
        truncate_case,
    ],
    ids=["figure", "load", "truncated"],
)
def test_detects_changed_case_without_replay(study, damage):
    path, out = study
    case = damage(out)
    assert checked(path, out, 0).differs == [f"{case}: is damaged, or has changed since it was stored"]


def test_replay_detects_changed_digit_with_forged_digest(study):
    path, out = study
    edit_case(out, another_figure, forged=True)
    (out / "results.jsonl").unlink()
    assert checked(path, out, 0).differs == []
    (told,) = checked(path, out).differs
    assert "run again: bsld is" in told


def test_detects_changed_digit_in_lines(study):
    path, out = study
    lines = (out / "results.jsonl").read_text().splitlines()
    line = json.loads(lines[0])
    another_figure(line)
    (out / "results.jsonl").write_text("\n".join([json.dumps(line), *lines[1:]]) + "\n")
    assert [each.partition(": ")[0] for each in checked(path, out, 0).differs] == [f"{out / 'results.jsonl'}:1"]


def test_reports_results_of_other_data_without_replay(study):
    path, out = study
    with (path.parent / "four.swf").open("a") as file:
        file.write("; changed\n")
    found = checked(path, out)
    assert (found.decided, len(found.other)) == (0, 4)


def test_empty_folder_is_error(study, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains no results"):
        checked(study[0], tmp_path / "empty")


def test_sample_depends_on_seed_only(study):
    path, out = study

    def sample(seed):
        engine = Here()
        verify_study_results(read_study(path), out, engine, 1, seed)
        return engine.decided

    assert sample(3) == sample(3)
    assert len({tuple(sample(seed)) for seed in range(8)}) == 2, "easy and list-sjf"


def test_replays_no_case_with_time_limit_or_without_figures(tmp_path):
    windows = ["whole", {"days": 1, "from_day": 9}]
    path = written(tmp_path, grids=[{"traces": ["four"], "dispatchers": ["pcp20", "easy"], "windows": windows}])
    write_study_outputs(run_missing_cases(read_study(path), StudyResultStore(tmp_path / "out"), Here()))
    found = checked(path, tmp_path / "out")
    assert (found.read, found.by_clock, found.decided, found.differs) == (4, 1, 1, [])


def test_case_that_crashes_in_replay_differs(study):
    path, out = study

    def dying(work, tasks, heard, looked):
        for at in tasks:
            heard(at, 0.5)
            heard(at, TaskFailure.from_exit_code(-9))

    found = verify_study_results(read_study(path), out, dying, 1)
    assert (found.decided, found.same) == (1, 0)
    assert found.differs[0].endswith("its process died with exit code -9")


@pytest.mark.parametrize("text", ["{", "[]", '{"digest": "0"}', '{"digest": "0", "inputs": {}, "result": {}}'])
def test_invalid_line_is_reported_with_number(study, text):
    path, out = study
    lines = out / "results.jsonl"
    lines.write_text(lines.read_text() + text + "\n")
    with pytest.raises(InputError, match=r"results.jsonl:5: is not a result"):
        checked(path, lines, 0)
