"""`cpsched whatif` from a file to a report."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue
from cpsched_sim.cli import app
from cpsched_sim.systems.system_file import parse_system
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_io import TABLE_ROWS_BY_FILE
from tests.unit.sim.whatif.accounting import SYSTEM, a_file, a_line, a_site, a_window


def invoke(*arguments):
    return CliRunner().invoke(app, ["whatif", "run", *map(str, arguments)])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "small.yaml").write_text(SYSTEM)
    return a_site(folder, days=3, jobs_a_day=80), folder / "small.yaml"


@pytest.fixture(scope="module")
def done(site, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "report"
    jobs, system = site
    said = invoke(
        jobs, "--system", system, "--with", "easy", "--add-nodes", 3, "--like", "a", "--out", out, "--seeds", 1
    )
    return said, out


def test_writes_report_with_tables(done):
    said, out = done
    assert said.exit_code == 0, said.output
    assert "Fidelity: good" in said.stdout
    names = {path.name for path in out.iterdir()}
    assert names == {"report.html", "report.md", "findings.json", "replays", *TABLE_ROWS_BY_FILE}
    found = json.loads((out / "findings.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["easy", "add-nodes=3 like=a"]
    more = found["cases"][1]["figures"][0]
    assert more["difference"] < 0
    assert more["interval"][0] <= more["difference"] <= more["interval"][1]
    assert len(found["sentences"]) == 3
    assert found["digests"]["input_sha256"]


def test_page_is_self_contained_with_numbers_of_pictures(done):
    text = (done[1] / "report.html").read_text()
    for foreign in ("<script", "<link", "src=", "@import", "url(http"):
        assert foreign not in text
    assert text.count("<svg") == text.count('role="img"') == text.count("<figure>") >= 4
    assert text.count("Data in this chart") >= 4
    assert "#10101" not in text, "every colour is the page's own"
    assert "screen and (prefers-color-scheme: dark)" in text, "paper is white, whatever the screen is"
    assert "@media print" in text
    assert "max-width: 40rem" in text, "pictures keep their letters legible on a phone, and scroll"
    assert "characters)" not in (done[1] / "report.md").read_text(), "no note and no date is cut"


def test_resume_replays_nothing_finished(done, site):
    out, (jobs, system) = done[1], site
    before = {path.name: path.stat().st_mtime_ns for path in (out / "replays").iterdir()}
    again = invoke(jobs, "--system", system, "--with", "easy", "--out", out, "--seeds", 1, "--resume", "--json")
    assert again.exit_code == 0, again.output
    assert [case["name"] for case in json.loads(again.stdout)["cases"]] == ["easy"]
    assert {path.name: path.stat().st_mtime_ns for path in (out / "replays").iterdir()} == before
    refused = invoke(jobs, "--system", system, "--with", "easy", "--out", out)
    assert (refused.exit_code, "use --resume" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--with", "easy", "--like", "a"), "--like=a: requires --add-nodes"),
        (("--with", "easy", "--into", "main"), "--into=main: requires --remove-partition"),
        (("--with", "easy", "--with", "control objective=fairest"), "objective=fairest: must be one of balance, "),
        (("--from", "2031-01-01", "--to", "2031-02-01"), "no job that ran became eligible from 2031-01-01"),
    ],
)
def test_rejects_invalid_options_before_replay(site, tmp_path, words, rule):
    jobs, system = site
    said = invoke(jobs, "--system", system, *words, "--out", tmp_path / "report")
    assert (said.exit_code, rule in said.stderr) == (2, True)
    assert not (tmp_path / "report").exists()


def test_stops_after_poor_twin(tmp_path):
    system = tmp_path / "small.yaml"
    system.write_text(SYSTEM)
    lines = [a_line(at, 60 * at, 60 * at + 40_000, 60 * at + 40_100) for at in range(300)]
    out = tmp_path / "out"
    said = invoke(a_file(tmp_path, lines), "--system", system, "--with", "easy", "--out", out, "--no-sessions")
    assert said.exit_code == 3, said.output
    assert "hopeless" in said.stderr
    found = json.loads((out / "findings.json").read_text())
    assert (found["stopped"], found["cases"]) == (True, [])


def test_names_or_counts_broken_lines(site, tmp_path):
    jobs, system = site
    lines = jobs.read_text().splitlines()
    broken = tmp_path / "broken.txt"
    broken.write_text("\n".join([lines[0], *(line[:40] if at % 5 == 0 else line for at, line in enumerate(lines[1:]))]))
    refused = invoke(broken, "--system", system, "--out", tmp_path / "one")
    assert refused.exit_code == 2
    assert "broken.txt:2: fields" in refused.stderr
    said = invoke(broken, "--system", system, "--out", tmp_path / "two", "--lenient", "--no-sessions", "--json")
    found = json.loads(said.stdout)
    assert sum(count for why, count in found["left_out"].items() if "broken" in why) == 48


def test_rejects_trace_without_starts(tmp_path):
    path = tmp_path / "trace.swf"
    path.write_text("; MaxProcs: 4\n1 0 -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n")
    said = invoke(path, "--out", tmp_path / "out")
    assert said.exit_code == 2
    assert "records no job start" in said.stderr


def test_hints_at_nodes_that_most_jobs_cannot_use(tmp_path):
    """More nodes of a partition with little use shorten no wait."""
    window = a_window(tmp_path, [a_line(at, at * 60, at * 60, at * 60 + 30) for at in range(1, 9)])
    system = SYSTEM.replace("main: [a, b]", "main: [a]")
    apart = replace(window, system=parse_system(tmp_path, system))
    hint = "8 of 8 jobs are in partitions without nodes like b (main), so they cannot use the new nodes"
    like_a, like_b = (WhatIfCase.parse(f"add-nodes=2 like={name}") for name in "ab")
    assert like_b.added_nodes_hint(apart) == f"add-nodes=2 like=b: {hint}"
    assert like_a.added_nodes_hint(apart) == like_b.added_nodes_hint(window) == ""
    with pytest.raises(InvalidValue, match=r"like=\(not given\): must be a node type of small.*: a, b"):
        WhatIfCase.parse("add-nodes=2").added_nodes_hint(window)
