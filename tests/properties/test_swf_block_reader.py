"""Test that reading SWF by block and by line gives the same jobs, notes, and errors for invalid lines."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpsched.errors import CpschedError
from cpsched_sim.input import text_line_reader
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from cpsched_sim.traces.trace_jobs import ColumnarTrace
from cpsched_sim.workloads import workload_loader as loading
from cpsched_sim.workloads.workload_loader import load
from tests.fuzz.mutations import CHANGES, mutated
from tests.traces import ATLAS, KTH, trace

NUMBERS = st.sampled_from(("-1", "0", "1", "7", "64", "2000", "3000", "9000000000")) | st.integers(-2, 70).map(str)
ODD = st.sampled_from(
    ["2.5", "-0", "007", "+3", "1e3", "x", ";", "-", "--4", "1_0", "9" * 18, "9" * 19, str(1 << 41), "\u0663", "a\x1cb"]
)
PLAIN_LINE = st.lists(NUMBERS, min_size=17, max_size=18)


@st.composite
def swf_lines(draw):
    """Draw a job's line without its number; most lines are plain."""
    fields = draw(PLAIN_LINE)
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.integers(0, 16))] = draw(ODD)
    more = draw(st.sampled_from(("", "", "", " 0.975", " frontier:excl:2x8", " \x0b", "\t")))
    return draw(st.sampled_from((" ", "  ", "\t", " \t"))).join(fields) + more


OTHER_LINES = st.sampled_from(["", " ", "; a comment", " ; Queue: 1 - a", "; MaxProcs: 9", "x", "1 2 3", "\u2028"])
SYSTEMS = st.sampled_from(["pool", "eurora", "kit-forhlr2"])
ONE_JOB = b"1 0 -1 5 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1"
DAMAGED_ARCHIVES = CHANGES.map(lambda changes: mutated(b"; MaxProcs: 64\n" + ONE_JOB, [("gzip", 0, b""), *changes]))


@st.composite
def swf_files(draw):
    """Draw the bytes of a file with a header, jobs with mostly distinct numbers, and other lines."""
    lines = draw(st.lists(swf_lines(), max_size=12))
    numbered = [f"{draw(st.sampled_from((at, at, at, at, 1)))} {line}" for at, line in enumerate(lines)]
    for other in draw(st.lists(OTHER_LINES, max_size=3)):
        numbered.insert(draw(st.integers(0, len(numbered))), other)
    ends = draw(st.sampled_from(("\n", "\n", "\r\n", "\r")))
    content = ends.join(["; MaxProcs: 64", *numbered, *([""] * draw(st.integers(0, 1)))]).encode()
    return mutated(content, draw(st.just([]) | CHANGES))


def outcome(path, **options):
    """Return everything that a reader reports about a file."""
    told = []
    try:
        found = load(path, progress=told.append, **options)
    except CpschedError as error:
        return type(error), str(error)
    return list(found.jobs), found.notes, found.header, found.origin, found.cluster.epoch_s


def by_line(path, **options):
    """Return the outcome of reading line by line."""
    with patch.object(loading, "read_swf_columns", lambda *_: None):
        return outcome(path, **options)


@scaled_example_settings(400)
@given(swf_files() | DAMAGED_ARCHIVES, st.booleans(), SYSTEMS, st.sampled_from([1, 40, 1 << 18]))
@example(b"; MaxProcs: 4\n" + ONE_JOB, False, "pool", 1)
def test_block_reading_equals_line_reading(content, lenient, system, block_bytes):
    with tempfile.TemporaryDirectory() as folder, patch.object(text_line_reader, "_BLOCK_BYTES", block_bytes):
        path = Path(folder) / "t.swf"
        path.write_bytes(content)
        assert outcome(path, system=system, lenient=lenient) == by_line(path, system=system, lenient=lenient)


@pytest.mark.parametrize("name", [KTH, ATLAS])
def test_shared_traces_are_read_in_columns(name):
    path = trace(name)
    assert isinstance(load(path).jobs, ColumnarTrace)
    assert outcome(path) == by_line(path)
