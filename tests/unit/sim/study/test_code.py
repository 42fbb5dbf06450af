"""Digests of code change with what decides, and with nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cpsched_sim.oracle import SIMULATED
from cpsched_sim.study import code
from cpsched_sim.study.bare import bare
from cpsched_sim.study.campaign import campaign_of
from cpsched_sim.study.code import READERS, TELLING, code_of, code_of_reader, shared_files
from cpsched_sim.study.deciding import decide
from cpsched_sim.traces import record, swf
from tests.patience import ENOUGH_S
from tests.unit.sim.study.studies import plugin, words, written

CODE = '''
"""What it is for."""
A = 1  # first

def f():
    return """
# no comment

"""
'''


def left_of(tmp_path, text):
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    return bare(path).decode()


def test_docstrings_comments_and_blank_lines_are_left_out_and_code_is_not(tmp_path):
    assert left_of(tmp_path, CODE) == 'A = 1  # first\ndef f():\n    return """\n# no comment\n\n"""'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('x = 1\n"""What x is,\n\n# at length."""\ny = 2', "x = 1\ny = 2"),
        ('class C:\n    """é."""\n    x = 1', "class C:\n    x = 1"),
        ('def f(): "doc"', 'def f(): "doc"'),
        ('"é"; x = 1', '"é"; x = 1'),
        ('x = 1; "said"', 'x = 1; "said"'),
        ("1\nb'bytes'", "1\nb'bytes'"),
        ("x = f'''\n# {1}\n'''", "x = f'''\n# {1}\n'''"),
        ("x = 1 \\\n\n-2", "x = 1 \\\n\n-2"),
        ("x = 1 \\\n# no more\n-2", "x = 1 \\\n# no more\n-2"),
        ("if x:\n    # why\n\n    y = 2", "if x:\n    y = 2"),
    ],
)
def test_lines_that_hold_anything_else_stay(tmp_path, text, left):
    assert left_of(tmp_path, text) == left


def test_a_file_is_read_again_after_a_change(tmp_path):
    assert left_of(tmp_path, "a = 1") != left_of(tmp_path, "a = 2")


def test_a_comment_or_a_docstring_changes_no_digest_of_a_dispatcher(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own = plugin(tmp_path)

    def digest():
        (case,) = campaign_of(words(grids=[{"traces": ["four"], "dispatchers": [own]}]), tmp_path).cases
        return case.digest

    before = digest()
    for name in ("mine.py", "helper.py"):
        (tmp_path / name).write_text(f'"""Told."""\n\n# why\n{(tmp_path / name).read_text()}')
    assert digest() == before
    plugin(tmp_path, order="reversed(range(len(snapshot.queue)))")
    assert digest() != before


STUBBED = """
import json, sys
from types import ModuleType

class Stub(ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        def fails(*arguments, **more):
            raise AssertionError(f"{self.__name__}.{name} has a part in figures")
        return fails

for name in sys.argv[1:]:
    sys.modules[name] = Stub(name)
from cpsched_sim.study.deciding import decide
print(json.dumps(decide(json.load(sys.stdin)).result))
"""


def test_figures_are_the_same_without_the_modules_that_only_tell_them(tmp_path):
    written(tmp_path)
    grid = {"traces": ["four"], "dispatchers": ["slurm"], "windows": [{"days": 1}], "loads": [2.0]}
    (case,) = campaign_of(words(grids=[grid], jobs=True), tmp_path).cases
    command = [sys.executable, "-c", STUBBED, *TELLING]
    task = json.dumps({**case.task, "memory_mib": None})
    found = subprocess.run(command, input=task, capture_output=True, text=True, timeout=ENOUGH_S, check=True)
    assert json.loads(found.stdout) == decide({**case.task, "memory_mib": None}).result


def test_the_shared_part_has_what_replays_and_none_of_what_shows_serves_or_reads():
    _, _, shared = shared_files()
    assert {
        "cpsched.fit", "cpsched.metrics", "cpsched_sim.cluster.replay", "cpsched_sim.experiment",
        "cpsched_sim.study.deciding", "cpsched_sim.tuning.windows", "cpsched_sim.workloads.lublin",
    } <= shared  # fmt: skip
    others = ("cpsched_bridge", "cpsched_sim.cli", "cpsched_sim.report", "cpsched_sim.whatif", *TELLING, *READERS)
    assert not [name for name in shared if name.startswith(others)]
    assert not [name for name in shared if name.startswith(("cpsched.dispatchers.cp", "cpsched.dispatchers.easy"))]


OWN_FORMAT = """
from cpsched_sim.traces.swf import SwfReader


class Own(SwfReader):
    {body}
"""


def test_a_digest_follows_the_reader_of_its_own_trace_alone(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    traces = {"four": {"file": "four.swf"}, "own": {"file": "four.swf", "format": "mine:Own"}}
    study = words(traces=traces, grids=[{"traces": ["four", "own"], "dispatchers": ["easy"]}])

    def digests():
        return [case.digest for case in campaign_of(study, tmp_path).cases]

    (tmp_path / "mine.py").write_text(OWN_FORMAT.format(body="pass"))
    four, own = digests()
    (tmp_path / "mine.py").write_text(OWN_FORMAT.format(body="FIRST = 2"))
    assert digests()[0] == four
    assert digests()[1] != own


def test_each_format_of_the_project_has_a_digest_of_its_own_and_none_has_the_shared_part():
    readers = [f"cpsched_sim.traces.{name}" for name in ("swf", "sacct", "pbs", "native", "kestrel", "pm100")]
    assert len({code_of_reader(reader) for reader in readers}) == len(readers)


def edited(monkeypatch, module):
    """Let the source of a module be another one."""
    monkeypatch.setattr(code, "bare", lambda path: b"" if path == Path(module.__file__) else bare(path))


def test_a_reader_is_no_part_of_the_digest_of_a_dispatcher(monkeypatch):
    before, reader = code_of("easy", "walltime", SIMULATED), code_of_reader(swf.__name__)
    edited(monkeypatch, swf)
    assert code_of("easy", "walltime", SIMULATED) == before
    assert code_of_reader(swf.__name__) != reader


def test_what_every_replay_shares_is_no_part_of_the_digest_of_a_trace(monkeypatch):
    before, reader = code_of("easy", "walltime", SIMULATED), code_of_reader(swf.__name__)
    edited(monkeypatch, record)
    assert code_of("easy", "walltime", SIMULATED) != before
    assert code_of_reader(swf.__name__) == reader


def test_what_a_dispatcher_imports_when_it_first_decides_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    own = plugin(tmp_path, body="import later")
    (tmp_path / "later.py").write_text("A = 1\n")
    before = code_of(own, "walltime", SIMULATED)
    (tmp_path / "later.py").write_text("A = 22\n")
    assert code_of(own, "walltime", SIMULATED) != before
