"""A planted digit is found, wherever it stands."""

import hashlib
import json

import pytest

from cpsched_sim.errors import Unusable
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
