"""What an outlook has learned outlives a restart, whatever is in the file."""

import json
import math
import random

import pytest

from cpsched.model import EndedJob
from cpsched.outlook import HORIZONS_S, OUTCOMES
from cpsched_bridge.program import assembly
from cpsched_bridge.store import outlook_file
from cpsched_bridge.store.damage import Damaged
from cpsched_bridge.watch import memory
from cpsched_bridge.watch.kept import HORIZONS, WEEK_H, Week
from cpsched_bridge.watch.outlook import Outlook
from tests.builders import a_job
from tests.fuzz.stored import a_memory


def again(kept, now_s=30_000):
    """An outlook that began with what was kept."""
    outlook = Outlook()
    outlook.recall(memory.of_json(json.loads(json.dumps(kept))))
    outlook._clock_s = now_s
    return outlook


def test_what_was_learned_is_there_again():
    kept = a_memory()
    assert (len(kept["ends"]), len(kept["told"]), len(kept["known"])) == (40, 20, 40)
    assert sum(row[-1] for row in kept["week"]) == 40
    assert again(kept).kept() == kept
    found, before = again(kept), memory.of_json(kept)
    found._learned()
    job = a_job(1, walltime_s=600, user="ada", name="run")
    assert found._run_times.drawn(job, [0.5]).tolist() == [300]
    assert found._telling.told == before.telling.told


def test_an_end_is_learned_from_once_though_the_accounting_tells_it_again():
    outlook = again(kept := a_memory())
    last_s = max(row[-1] for row in kept["ends"])
    for start_s, end_s in ((0, 300), (last_s - 300, last_s), (last_s, last_s + 1)):
        outlook._unread.append(EndedJob(a_job(9, walltime_s=600, user="ada"), start_s, end_s))
    outlook._learned()
    assert outlook._run_times.ended == 41


def test_a_job_that_started_and_ended_while_no_bridge_ran_is_judged():
    outlook = again(a_memory())
    outlook._unread.append(EndedJob(a_job(50, walltime_s=600, user="ada"), 31_000, 31_100))
    outlook._learned()
    assert 50 not in outlook._telling.told
    assert sum(outlook.taken_outcomes().values()) == 1
    assert sum(outlook.taken_outcomes().values()) == 0


@pytest.mark.parametrize(("now_s", "kept"), [(30_000 - 3601, 0), (30_000 - 3600, 40)])
def test_the_memory_of_another_clock_does_not_count(now_s, kept):
    outlook = again(a_memory(), now_s)
    outlook._learned()
    assert outlook._run_times.ended == kept


def test_nothing_is_written_before_the_cluster_was_read(tmp_path):
    path = tmp_path / "outlook"
    outlook_file.write(path, a_memory())
    before, outlook = path.read_bytes(), Outlook()
    assembly.recall(outlook, path)
    assembly.keep(outlook, path)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_file_does_not_grow_without_bound():
    outlook, kept = Outlook(), a_memory()
    outlook._clock_s = 0
    for id in range(memory.MOST_ENDS + 500):
        outlook._unread.append(EndedJob(a_job(id, walltime_s=600, user="u" * 500), id, id + 10))
    kept = outlook.kept()
    assert len(kept["ends"]) == memory.MOST_ENDS
    assert max(len(row[1]) for row in kept["ends"]) == 256
    assert again(kept, 0).kept() == kept


def test_a_week_is_counted_by_the_hour():
    week = Week()
    for hour in range(3 * WEEK_H):
        week.note(hour % len(HORIZONS), "late", 3600 * hour)
    assert len(week.hours) == WEEK_H + 1
    assert sum(week.counts(3600 * (3 * WEEK_H - 1)).values()) == WEEK_H
    assert sum(week.counts(3600 * (3 * WEEK_H + 9)).values()) == WEEK_H - 10
    assert len(HORIZONS) == len(HORIZONS_S) + 1


HOSTILE = [None, [], {}, "x", -1, 1.5, math.nan, math.inf, 1e308, 1 << 63, "9" * 5000, [[1]], True]


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_in_it_is_either_refused_or_does_no_harm(seed):
    """One value anywhere is another one."""
    chance, kept = random.Random(seed), a_memory()
    place = kept
    key = chance.choice(list(kept))
    while isinstance(place[key], list) and place[key] and chance.random() < 0.9:
        place, key = place[key], chance.randrange(len(place[key]))
    place[key] = chance.choice(HOSTILE)
    try:
        found = memory.of_json(kept)
    except Damaged:
        return
    outlook = Outlook()
    outlook.recall(found)
    outlook._clock_s = 30_000
    assert memory.of_json(json.loads(json.dumps(outlook.kept())))


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(1000), b"[" * 100_000])
def test_a_file_that_is_none_is_told_of_and_replaced(tmp_path, content, capsys):
    path, outlook = tmp_path / "outlook", Outlook()
    path.write_bytes(content)
    assembly.recall(outlook, path)
    assert outlook._recalled is None
    outlook._clock_s = 5
    assembly.keep(outlook, path)
    assert outlook_file.read(path)["clock_s"] == 5


def test_what_is_in_the_place_of_a_file_ends_nothing(tmp_path):
    path = tmp_path / "outlook"
    (path / "full").mkdir(parents=True)
    outlook = Outlook()
    outlook._clock_s = 5
    assembly.recall(outlook, path)
    assembly.keep(outlook, path)
    assert path.is_dir()


def test_a_file_that_unpacks_to_more_than_was_written_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "outlook"
    outlook_file.write(path, [0] * 10_000)
    monkeypatch.setattr(outlook_file, "_MOST_UNPACKED", 10_000)
    with pytest.raises(Damaged, match="does not end"):
        outlook_file.read(path)
    monkeypatch.setattr(outlook_file, "MOST_BYTES", 50)
    with pytest.raises(Damaged, match="longer than"):
        outlook_file.read(path)
    assert OUTCOMES[0] == "held"
