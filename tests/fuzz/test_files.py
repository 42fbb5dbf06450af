"""Pass mutations of valid files of every kind to the real command line.

`make test` runs about two hundred fixed cases. `make bounds` and `make fuzz` run more cases, which differ each time
(CPSCHED_FUZZ_CASES sets the number for each of the tests below).
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cpsched_sim.systems.system_file import load_system
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.fuzz.command_line import complaint, invoke
from tests.fuzz.mutations import CHANGES, HOSTILE, mutated
from tests.fuzz.samples import ASSOCIATIONS, NODES, POLICY, SACCT, SETTINGS, SINFO, SWF, SYSTEM, TRACES, WAITS
from tests.unit.sim.traces.tables import kestrel, pm100, write

MORE = os.environ.get("CPSCHED_FUZZ_CASES")
FUZZ = settings(
    scaled_example_settings(100) if MORE is None else settings(max_examples=int(MORE), derandomize=False),
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
EURORA = ("--system", "eurora")
ON = {"t.sacct": EURORA, "x.log": EURORA, "20261123": EURORA}
"""Accounting data knows nothing of its machine."""
WAYS = (
    ("accuracy",),
    ("simulate", "--predictor", "profile", "--set", "overrun=double"),
    ("simulate", "--dispatcher", "list-spf", "--lenient"),
    ("simulate", "--dispatcher", "fcfs"),
)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        yield Path(name)


@pytest.fixture(scope="module", autouse=True)
def warm(folder):
    """What the first command costs (imports, kernels that are compiled) is no part of any case."""
    for name, content in TRACES.items():
        path = written(folder, name, content.encode())
        for way in WAYS:
            invoke(way[0], path, "--json", *ON.get(name, ()), *way[1:])
    invoke("simulate", path, "--json", *EURORA, "--dispatcher", "prb", "--predictor", "profile")


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def check(content, use, share=1):
    """Call `use` with mutations of a file, a `share` of the usual number."""

    @settings(FUZZ, max_examples=max(1, FUZZ.max_examples // share))
    @given(CHANGES)
    def used(changes):
        use(mutated(content.encode() if isinstance(content, str) else content, changes))

    used()


def refused_or_used(folder, name, content, command, *words, share=1):
    """Run a command on mutations of a file that `FILE` stands for; it may complain in one line."""

    def run(mutation):
        path = written(folder, name, mutation)
        assert complaint(command, *(path if word == "FILE" else word for word in words)) == ""

    check(content, run, share)


@pytest.mark.parametrize("name", TRACES)
def test_mutated_trace_is_used_or_rejected_in_one_line(folder, name):
    def used(mutation):
        way = WAYS[len(mutation) % len(WAYS)]
        assert complaint(way[0], written(folder, name, mutation), "--json", *ON.get(name, ()), *way[1:]) == ""

    check(TRACES[name], used)


@pytest.mark.parametrize("rows", [[pm100(1), pm100(2)], [kestrel("1"), kestrel("2_3")]], ids=["pm100", "kestrel"])
def test_mutated_table_is_read_or_rejected_in_one_line(folder, rows):
    content = write(folder / "good.parquet", rows).read_bytes()
    words = ("FILE", "--json", "--predictor", "walltime")
    refused_or_used(folder, "t.parquet", content, "accuracy", *words, share=4)


@pytest.mark.parametrize(
    ("name", "content", "words", "share"),
    [
        ("system.yaml", SYSTEM, ("--system", "FILE"), 1),
        ("policy.yaml", POLICY, ("--policy", "FILE", "--set", "order=priority"), 4),
        ("assoc.txt", ASSOCIATIONS, ("--policy", "dumps.yaml"), 4),
        ("waits.json", WAITS, ("--dispatcher", "prb", "--set", "ewt_file=waits.json"), 1),
    ],
)
def test_mutated_side_file_is_used_or_rejected_in_one_line(folder, monkeypatch, name, content, words, share):
    monkeypatch.chdir(folder)
    trace = written(folder, "good.swf", SWF.encode())
    written(folder, "dumps.yaml", b"dumps: { associations: assoc.txt }\n")
    refused_or_used(folder, name, content, "simulate", trace, *words, "--json", share=share)


@pytest.mark.parametrize("sample", [NODES, SINFO, SACCT, SWF], ids=["scontrol", "sinfo", "sacct", "swf"])
def test_mutated_node_or_job_list_gives_valid_system_or_none(folder, sample):
    def made(mutation):
        path, out = written(folder, "nodes.txt", mutation), folder / "made.yaml"
        out.unlink(missing_ok=True)
        assert complaint("system", "from-slurm", path, "--out", out, "--lenient") == ""
        if out.exists():
            load_system(str(out))

    check(sample, made)


def test_mutated_column_options_are_used_or_rejected_in_one_line(folder):
    path = written(folder, "t.sacct", SACCT.encode())

    def named(mutation):
        words = mutation.decode("utf-8", "surrogateescape")
        assert complaint("accuracy", path, "--json", "--columns", words) == ""

    check("JobIDRaw=JobIDRaw,User=Account,Submit=Submit,Timelimit=8", named)


def test_mutated_settings_are_used_or_rejected_in_one_line(folder):
    text = SETTINGS.replace("STATE", str(folder / "state"))
    refused_or_used(folder, "bridge.yaml", text, "journal", "list", "--config", "FILE")


OPTIONS = (
    "--dispatcher", "--predictor", "--set", "--charge", "--limit", "--effort", "--seed", "--max-jobs",
    "--format", "--metric", "--system", "--out", "--policy", "--nonsense",
    "--columns", "--zone", "--arrival",
)  # fmt: skip
SETTINGS_OF_PRB_AND_PROFILE = ("ewt_file", "allocation", "remember", "overrun", "dispatcher.x", "")
TEXTS = st.sampled_from(HOSTILE).map(lambda word: word.decode("utf-8", "surrogateescape"))
SETTINGS_AND_VALUES = st.tuples(st.sampled_from(SETTINGS_OF_PRB_AND_PROFILE), TEXTS).map("=".join)
ARGUMENTS = st.tuples(st.sampled_from(OPTIONS), TEXTS) | st.tuples(st.just("--set"), SETTINGS_AND_VALUES)


@FUZZ
@given(st.lists(ARGUMENTS, min_size=1, max_size=2))
def test_hostile_arguments_are_used_or_rejected_in_one_line(folder, arguments):
    trace = written(folder, "good.swf", SWF.encode())
    words = ["--dispatcher", "prb", "--predictor", "profile"]
    for option, word in arguments:  # results go to a folder of the test, whatever its name
        words += [option, f"{folder / 'out'}/{word.replace('..', '')}" if option == "--out" else word]
    assert complaint("simulate", trace, "--json", *words) == ""
