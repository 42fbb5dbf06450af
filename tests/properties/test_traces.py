"""Test that trace readers return the written data, and fail only with their documented errors."""

import string
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from cpsched_sim.traces import native_format
from cpsched_sim.traces.pbs_accounting import PbsAccountingReader
from cpsched_sim.traces.swf import SwfReader
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

WORDS = st.text(string.ascii_letters + string.digits + ' ,"_-|;#äß', max_size=12)
PIECES = [
    "11/23/2026 09:40:00;E;7.vm;user=ada", "11/23/2026 09:40:00;R;7.vm;user=ada", "11/23/2026 09:41:00;S;7.vm;user=ada",
    "11/23/2026 09:40:00;Q;8[].vm;user=bob", "11/23/2026 09:40:00;E;8[2].vm;", "99/99/2026 09:40:00;D;7.vm;", "\n",
    'account="x"', 'account="', "account='", '" project=p', "jobname=a", "queue=q", "ctime=1795426000", "ctime=",
    "ctime=x", "etime=0", "start=1795426500", "start=0", "start=-1", "end=1795426900", "end=1795426900.5",
    "end=99999999999999999999",
    "exec_host=n1/0*2+n2/1", "Resource_List.select=2:ncpus=1", "Resource_List.select=1:ncpus=0+3:mem=1gb:x=y",
    "Resource_List.select=+", "Resource_List.place=pack:excl", "Resource_List.walltime=01:00:00",
    "Resource_List.walltime=::", "Resource_List.mem=99999999999999pb", "=", "a=b=c",
]  # fmt: skip
"""Valid and invalid parts of lines in PBS's accounting log."""
SECONDS = st.integers(1, 10**9)
AMOUNTS = st.fixed_dictionaries({"cores": st.integers(1, 10**6), "gpus": st.integers(0, 8)})


@st.composite
def records(draw):
    """Draw jobs with units and named amounts."""
    count = draw(st.integers(0, 6))
    return [
        TraceRecord(
            id,
            draw(st.integers(0, 10**10)),
            draw(SECONDS),
            draw(SECONDS),
            UnitsRequest(
                draw(st.integers(1, 10**5)),
                tuple((name, amount) for name, amount in sorted(draw(AMOUNTS).items()) if amount),
                draw(st.booleans()),
                draw(st.booleans()),
                draw(WORDS),
            ),
            *(draw(WORDS) for _ in range(4)),
        )
        for id in range(count)
    ]


def recorded(job, wait_s):
    """Return the job with a start after `wait_s` seconds; None means unknown."""
    return job._replace(start_s=None if wait_s is None else job.submit_s + wait_s)


@scaled_example_settings(200)
@given(records(), st.lists(st.none() | st.integers(0, 10**9), min_size=6, max_size=6))
def test_native_format_round_trip(jobs, waits_s):
    jobs = [recorded(job, wait_s) for job, wait_s in zip(jobs, waits_s, strict=False)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv.gz"
        native_format.write(path, jobs, ("cores", "gpus"), {"system": "x"})
        assert list(native_format.NativeTraceReader(path)) == jobs


@scaled_example_settings(300)
@given(
    st.lists(st.lists(st.sampled_from(["-1", "0", "1", "7", "2.5", "x", "nan", "inf", ";"]), min_size=15, max_size=19))
)
def test_swf_lines_are_jobs_or_named_errors(lines):
    for job in read_lines(SwfReader, lines):
        assert job.walltime_s >= job.run_s >= 1
        assert job.ask.processors >= 1


@scaled_example_settings(300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12), max_size=8))
def test_pbs_lines_are_jobs_or_named_errors(lines):
    for job in read_lines(PbsAccountingReader, lines):
        assert job.run_s >= 1
        assert job.submit_s <= job.start_s
        assert job.ask.units >= 1
        assert job.ask.each


def read_lines(reader, lines):
    """Return the jobs of a file that is read leniently; if lines are skipped, strict reading must fail."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "20261123"
        path.write_text("".join(f"{' '.join(line)}\n" for line in lines))
        lenient = reader(path, lenient=True)
        jobs = list(lenient)
        assert strict_error(path, reader) == bool(lenient.tally.skipped)
    return jobs


def strict_error(path, reader):
    """Return whether strict reading fails with a message that names the line."""
    try:
        list(reader(path))
    except InvalidTrace as error:
        return str(error).startswith(f"{path}:{error.line}: ")
    return False
