"""Windows of the last weeks: the judged jobs, the other replayed jobs, and notes on omitted jobs."""

from dataclasses import replace

import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster
from cpsched_sim.errors import InputError
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.tuning.tuning_windows import DAY_S, MIN_WINDOW_JOBS, MIN_WINDOWS, cut_tuning_window, split_last_weeks
from tests.unit.sim.tuning.weeks import weeks


def test_windows_cover_last_weeks_and_judge_each_job_once():
    whole = weeks(days=28)
    found, notes = split_last_weeks(whole, 2, 3.5, 4000)
    assert notes == []
    assert len(found.all) == 4
    ends = [(window.from_s, window.to_s) for window in found.all]
    assert (ends[-1][1], ends[0][0]) == (28 * DAY_S, 14 * DAY_S)
    assert [to_s for _, to_s in ends[:-1]] == [from_s for from_s, _ in ends[1:]]
    assert sum(window.judged for window in found.all) == sum(e.job.submit_s >= 14 * DAY_S for e in whole.jobs)


def test_halves_share_no_window_and_cover_each_weekday():
    found, _ = split_last_weeks(weeks(days=28), 4, 3.5, 4000)
    assert {window.digest for window in found.choosing}.isdisjoint(window.digest for window in found.judging)
    order = [window in found.choosing for window in found.all]
    assert order == [True, False, False, True, True, False, False, True]


def test_short_trace_gives_shorter_windows_with_note():
    found, notes = split_last_weeks(weeks(days=8), 8, 3.5, 4000)
    assert len(found.all) == MIN_WINDOWS
    assert len(notes) == 2
    assert "1.1 weeks, fewer than the 8" in notes[0]
    assert "2 days long" in notes[1]


def test_truncates_large_windows_and_skips_small_ones():
    found, notes = split_last_weeks(weeks(days=28), 4, 3.5, 100)
    assert all(window.judged <= 101 for window in found.all)
    assert "8 windows have more than 100 jobs and were cut there" in notes
    busy = weeks(days=28)
    first_week = [e for e in busy.jobs if e.job.submit_s < 21 * DAY_S or e.job.submit_s > 24.6 * DAY_S]
    found, notes = split_last_weeks(replace(busy, jobs=first_week), 4, 3.5, 4000)
    assert notes == [f"1 of 8 windows have fewer than {MIN_WINDOW_JOBS} jobs and are omitted"]
    assert len(found.all) == 7


@pytest.mark.parametrize("jobs_a_day", [0, 2])
def test_rejects_too_few_jobs_with_needed_number(jobs_a_day):
    with pytest.raises(InputError, match=f"synthetic: windows=0: must be at least {MIN_WINDOWS} windows"):
        split_last_weeks(weeks(days=14, jobs_a_day=jobs_a_day), 2, 1, 4000)


def test_rejects_trace_of_one_moment():
    one = weeks(days=1, jobs_a_day=0)
    jobs = [TraceJob(replace(one.jobs[0].job, id=number), 5) for number in range(50)]
    with pytest.raises(InvalidValue, match="is too short to be cut into windows"):
        split_last_weeks(replace(one, jobs=jobs), 2, 1, 4000)


def a_cut(most_jobs=4000, from_s=100, to_s=170, **other):
    """A window of jobs that arrive at these seconds, each running for ten."""
    at_s = (0, 50, 85, 89, 90, 99, 100, 110, 120, 120, 120, 130, 169, 170, 179, 180, 200)
    whole = weeks(days=1, jobs_a_day=0)
    first = replace(whole.jobs[0].job, walltime_s=60)
    jobs = [TraceJob(replace(first, id=number, submit_s=submit_s), 10) for number, submit_s in enumerate(at_s)]
    changed = other.pop("job", {})
    whole = replace(whole, jobs=[changed.get(entry.job.id, entry) for entry in jobs])
    return cut_tuning_window(
        replace(whole, **other), [entry.job.submit_s for entry in whole.jobs], from_s, to_s, most_jobs
    )


@pytest.mark.parametrize(
    ("most_jobs", "to_s", "judged", "first", "last", "ended"),
    [
        (4000, 170, 7, 4, 14, 2),
        (7, 170, 7, 4, 14, 2),
        (4, 120, 2, 4, 10, 2),
        (3, 120, 2, 4, 10, 2),
        (1, 110, 1, 5, 7, 4),
    ],
)
def test_builds_complete_window(most_jobs, to_s, judged, first, last, ended):
    """Jobs of the second at which a window of too many is cut are not judged; margins are a seventh, and cut too."""
    found = a_cut(most_jobs)
    ids = [entry.job.id for entry in found.workload.jobs]
    assert (found.from_s, found.to_s, found.judged, ids[0], ids[-1]) == (100, to_s, judged, first, last)
    assert [each.job.id for each in found.workload.history] == list(range(ended))


@pytest.mark.parametrize(
    "other",
    [
        {"from_s": 101}, {"to_s": 171}, {"most_jobs": 4},
        {"cluster": Cluster.of([[17]], ["cores"])}, {"cluster": Cluster.of([[16]], ["cpus"])},
        {"cluster": Cluster.of([[16]], ["cores"], node_sets={"p": [0]})},
        {"cluster": Cluster.of([[16]], ["cores"], node_names=["other"])},
    ],
)  # fmt: skip
def test_each_part_of_window_changes_digest(other):
    assert a_cut(**other).digest != a_cut().digest == a_cut().digest


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("fact", ["run", "walltime", "user"])
def test_each_attribute_of_each_job_changes_digest(place, fact):
    """Of those that are judged, of the margins, and of the history."""
    window = a_cut()
    entry = next((e for e in window.workload.jobs if e.job.id == place), None)
    job = entry.job if entry else window.workload.history[place].job
    changed = {"walltime": replace(job, walltime_s=61), "user": replace(job, user="zoe")}.get(fact, job)
    other = a_cut(job={place: TraceJob(changed, 11 if fact == "run" else 10)})
    assert other.digest != window.digest
