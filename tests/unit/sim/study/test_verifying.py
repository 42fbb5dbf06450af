"""A planted digit is found, wherever it stands."""

import hashlib
import json

import pytest

from cpsched_sim.errors import Unusable
from cpsched_sim.processes import Died
from cpsched_sim.study import parquet
from cpsched_sim.study.campaign import read_campaign
from cpsched_sim.study.running import run_cases
from cpsched_sim.study.store import Store, encoded
from cpsched_sim.study.verifying import verify
from cpsched_sim.study.writing import write_all
from tests.unit.sim.study.studies import written
from tests.unit.sim.study.test_running import Here


@pytest.fixture
def study(tmp_path):
    """The path of a study that was run, and its folder of results."""
    path = written(tmp_path)
    write_all(run_cases(read_campaign(path), Store(tmp_path / "out"), Here()))
    return path, tmp_path / "out"


def checked(path, source, sample=4):
    return verify(read_campaign(path), source, Here(), sample)


def test_what_nobody_touched_is_the_same(study):
    path, out = study
    for source in (out, out / "results.jsonl"):
        found = checked(path, source)
        assert (found.read, found.decided, found.same, found.differs, found.other) == (4, 4, 4, [], [])


def changed(content):
    figures = content["result"]["figures"]
    figures["bsld"] += 1e-9
    return content


def test_a_digit_in_a_case_is_found_without_deciding_again(study):
    path, out = study
    case = sorted((out / "cases").iterdir())[0]
    case.write_bytes(encoded(changed(json.loads(case.read_bytes()))))
    assert any("has changed since it was kept" in each for each in checked(path, out, 0).differs)


def test_a_digit_whose_digest_was_forged_too_is_found_by_deciding_again(study):
    path, out = study
    case = sorted((out / "cases").iterdir())[0]
    content = encoded(changed(json.loads(case.read_bytes())))
    case.write_bytes(content)
    made = out / "made" / case.name
    made.write_bytes(encoded({**json.loads(made.read_bytes()), "result_sha256": hashlib.sha256(content).hexdigest()}))
    (out / "results.jsonl").unlink()
    (out / "results.parquet").unlink(missing_ok=True)
    assert checked(path, out, 0).differs == []
    (told,) = checked(path, out).differs
    assert "decided again: bsld is" in told


def test_a_digit_in_the_lines_is_found(study):
    path, out = study
    lines = (out / "results.jsonl").read_text().splitlines()
    lines[0] = json.dumps(changed(json.loads(lines[0])), sort_keys=True)
    (out / "results.jsonl").write_text("\n".join(lines) + "\n")
    assert any("results.jsonl:1: has changed" in each for each in checked(path, out, 0).differs)


def test_a_digit_in_parquet_is_found(study):
    pytest.importorskip("pyarrow")
    path, out = study
    rows = parquet.rows_of(out / "results.parquet")
    rows[1]["bsld"] += 1e-9
    (out / "results.parquet").write_bytes(parquet.packed(rows))
    assert any("results.parquet" in each and "bsld is" in each for each in checked(path, out, 0).differs)


def test_results_of_other_data_are_told_and_not_decided(study):
    path, out = study
    with (path.parent / "four.swf").open("a") as file:
        file.write("; changed\n")
    found = checked(path, out)
    assert (found.decided, len(found.other)) == (0, 4)


def test_where_there_is_nothing_nothing_is_fine(study, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(Unusable, match="has no results"):
        checked(study[0], tmp_path / "empty")


def test_a_damaged_case_and_one_that_was_written_otherwise_are_told(study):
    path, out = study
    one, other, *_ = sorted((out / "cases").iterdir())
    one.write_bytes(one.read_bytes()[:-9])
    other.write_text(json.dumps(json.loads(other.read_bytes()), sort_keys=True))
    told = checked(path, out, 0).differs
    assert [each.partition(": ")[2] for each in told] == ["is damaged", "is not written as studies write it"]


def test_a_line_that_was_forged_with_its_digest_is_held_against_its_case(study):
    path, out = study
    lines = (out / "results.jsonl").read_text().splitlines()
    line = changed(json.loads(lines[2]))
    forged = encoded({"inputs": line["inputs"], "result": line["result"]})
    line["made"]["result_sha256"] = hashlib.sha256(forged).hexdigest()
    lines[2] = json.dumps(line, sort_keys=True)
    (out / "results.jsonl").write_text("\n".join(lines) + "\n")
    (told,) = checked(path, out, 0).differs
    assert "results.jsonl: four, easy / walltime, seed 0: bsld is" in told


def test_inputs_that_were_changed_are_not_those_of_the_name(study):
    path, out = study
    lines = (out / "results.jsonl").read_text().splitlines()
    line = json.loads(lines[0])
    line["inputs"]["load"] = 3.0
    (out / "results.jsonl").write_text(json.dumps(line) + "\n")
    told = checked(path, out / "results.jsonl", 0).differs
    assert told[0].endswith("results.jsonl:1: its name is not the digest of its inputs")


def test_another_seed_is_another_sample_and_the_same_seed_the_same(study):
    path, out = study

    def sample(seed):
        engine = Here()
        verify(read_campaign(path), out, engine, 1, seed)
        return engine.decided

    assert sample(3) == sample(3)
    assert len({tuple(sample(seed)) for seed in range(8)}) == 2, "easy and list-sjf"


def test_what_ends_by_the_clock_is_not_decided_again(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["pcp20", "easy"]}
    path = written(tmp_path, grids=[grid])
    write_all(run_cases(read_campaign(path), Store(tmp_path / "out"), Here()))
    found = checked(path, tmp_path / "out")
    assert (found.by_clock, found.decided, found.fine) == (1, 1, True)


def test_what_has_no_figures_is_not_decided_again(tmp_path):
    grid = {"traces": ["four"], "dispatchers": ["easy"], "windows": ["whole", {"days": 1, "from_day": 9}]}
    path = written(tmp_path, grids=[grid])
    write_all(run_cases(read_campaign(path), Store(tmp_path / "out"), Here()))
    found = checked(path, tmp_path / "out")
    assert (found.read, found.decided, found.differs) == (2, 1, [])


def test_a_case_that_dies_when_it_is_decided_again_differs(study):
    path, out = study

    def dying(tasks, limit_s, heard, looked):
        for at in tasks:
            heard(at, 0.5)
            heard(at, Died(-9))

    found = verify(read_campaign(path), out, dying, 1)
    assert (found.decided, found.same) == (1, 0)
    assert found.differs[0].endswith("its process died with exit code -9")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", '{"digest": "0"}', '{"digest": "0", "inputs": {}, "result": {}}', "[" * 100_000, "9" * 5000],
)
def test_what_is_no_line_of_results_is_told_with_its_number(study, text):
    path, out = study
    lines = out / "results.jsonl"
    lines.write_text(lines.read_text() + text + "\n")
    with pytest.raises(Unusable, match=r"results.jsonl:5: is no line of results"):
        checked(path, lines, 0)


@pytest.mark.parametrize(
    "change",
    [{"made": []}, {"made": None}, {"result": "x"}, {"result": {}}, {"inputs": []}, {"labels": [1]}, {"digest": [1]}],
    ids=str,
)
def test_a_line_of_another_form_is_told_with_its_number(study, change):
    path, out = study
    lines = out / "results.jsonl"
    first, *others = lines.read_text().splitlines()
    lines.write_text("\n".join([*others, json.dumps(json.loads(first) | change)]))
    for source in (lines, out):
        with pytest.raises(Unusable, match=r"results.jsonl:4: is no line of results"):
            checked(path, source, 0)


def forged(line):
    """Another figure, with its digest."""
    line = changed(json.loads(json.dumps(line)))
    content = encoded({"inputs": line["inputs"], "result": line["result"]})
    return line | {"made": {**line["made"], "result_sha256": hashlib.sha256(content).hexdigest()}}


def test_lines_of_two_machines_that_say_the_same_are_fine_and_others_are_not(study):
    path, out = study
    lines = out / "results.jsonl"
    merged = lines.read_text() * 2
    lines.write_text(merged)
    assert checked(path, lines, 0).differs == []
    first = json.loads(merged.splitlines()[0])
    for text in (merged + json.dumps(forged(first)) + "\n", json.dumps(forged(first)) + "\n" + merged):
        lines.write_text(text)
        (found, *_) = checked(path, lines, 0).differs
        assert found.endswith("another line of the same case says something else")


def test_lines_whose_labels_were_swapped_are_found(study):
    path, out = study
    lines = out / "results.jsonl"
    first, *others, last = map(json.loads, lines.read_text().splitlines())
    assert first["labels"]["policy"] != last["labels"]["policy"]
    first["labels"], last["labels"] = last["labels"], first["labels"]
    lines.write_text("".join(json.dumps(line) + "\n" for line in (first, *others, last)))
    told = [f"{lines}:{number}: its labels are those of no such case" for number in (1, 4)]
    for source in (lines, out):
        assert checked(path, source, 0).differs == told


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("digest", "f" * 32, "f: there is no such case"), ("outcome", "failed", ": outcome is failed, not ended"),
        ("dispatcher", "fcfs", "its labels are those of no such case"), ("rounds", 1, ": rounds is 1, not "),
        (None, None, "None: there is no such case"),
    ],
)  # fmt: skip
def test_a_row_of_parquet_that_was_edited_is_found(study, column, value, told):
    if not parquet.is_there():
        pytest.skip("no pyarrow")
    path, out = study
    rows = parquet.rows_of(out / "results.parquet")
    if column is None:
        rows = [{name: each for name, each in row.items() if name != "digest"} for row in rows]
    else:
        rows[1][column] = value
    (out / "results.parquet").write_bytes(parquet.packed(rows))
    found = checked(path, out, 0).differs
    assert len(found) == (1 if column else 4)
    assert told in found[0]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 60 + b"PAR1"], ids=["empty", "cut", "noise"])
def test_parquet_that_cannot_be_read_is_told(study, content):
    if not parquet.is_there():
        pytest.skip("no pyarrow")
    path, out = study
    (out / "results.parquet").write_bytes(content)
    with pytest.raises(Unusable, match=r"results.parquet: cannot be read as Parquet"):
        checked(path, out, 0)
