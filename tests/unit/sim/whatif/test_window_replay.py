"""What a replay of a window does beyond an ordinary one."""

import numpy as np
import pytest

from cpsched_sim.cluster.replay import replay
from cpsched_sim.simulation import ReplayPolicySetup
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_window import WindowOptions
from cpsched_sim.whatif.window_replay import THINK_S, replay_window, session_dependencies
from tests.unit.sim.whatif.accounting import a_line, a_site, a_window, clock, replayed

DAY = 86_400
WHOLE = {"NNodes": 5, "NCPUS": 20, "NodeList": "a[1-3],b[1-2]"}


@pytest.mark.parametrize("text", ["easy", "slurm", "easy / profile", "lookahead effort=20", "advised effort=20"])
def test_without_anything_special_it_is_an_ordinary_replay(tmp_path, text):
    site = a_site(tmp_path, days=1, jobs_a_day=80)
    lines = site.read_text().splitlines()[1:]
    window = a_window(tmp_path, lines)
    setup = ReplayPolicySetup(WhatIfCase.parse(text).spec)
    cluster = System(window.system, window.header).cluster
    ordinary = replay(window.jobs, cluster, setup.build(window.jobs), strict=True)
    ours = replay_window(window, setup.build(window.jobs))
    assert np.array_equal(ours.start_s, ordinary.start_s)
    assert np.array_equal(ours.end_s, ordinary.end_s)


def test_what_runs_when_the_window_begins_holds_its_nodes_until_its_real_end(tmp_path):
    lines = [a_line(1, 0, 10, DAY + 500, **WHOLE), a_line(2, DAY + 5, DAY + 500, DAY + 600)]
    starts = replayed(a_window(tmp_path, lines, WindowOptions(from_=clock(DAY))), "easy")
    assert starts == {1: (DAY, DAY + 500), 2: (DAY + 500, DAY + 600)}


def test_who_gave_up_keeps_its_place_in_the_queue_until_then_and_no_longer(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000),
        a_line(2, 5, None, 400, State="CANCELLED by 7", **WHOLE),
        a_line(3, 6, 400, 9000, **{**WHOLE, "NNodes": 4, "NCPUS": 16, "Timelimit": "03:00:00"}),
    ]
    assert replayed(a_window(tmp_path, lines), "fcfs") == {1: (0, 1000), 3: (400, 9000)}


def test_one_that_gave_up_and_is_started_before_runs_until_then(tmp_path):
    lines = [a_line(1, 0, 0, 1000), a_line(2, 5, None, 400, State="CANCELLED by 7"), a_line(3, 6, 6, 9)]
    assert replayed(a_window(tmp_path, lines), "easy")[2] == (5, 400)


def test_a_job_of_a_reservation_comes_first_and_waits_where_there_is_no_room(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000, **WHOLE),
        a_line(2, 1, 2000, 2500),
        a_line(3, 0, 500, 1500, Reservation="r", **WHOLE),
    ]
    window = a_window(tmp_path, lines)
    assert replayed(window, "easy") == {1: (0, 1000), 3: (1000, 1500), 2: (1500, 2000)}
    assert replay_window(window, ReplayPolicySetup(WhatIfCase.parse("easy").spec).build()).late_fixed == 1


def test_a_job_of_a_reservation_begins_in_its_second_also_where_nobody_waits(tmp_path):
    lines = [a_line(1, 0, 500, 1500, Reservation="r", **WHOLE), a_line(2, 900, 1500, 1600), a_line(3, 2, 2, 300)]
    window = a_window(tmp_path, lines)
    found = replay_window(window, ReplayPolicySetup(WhatIfCase.parse("easy").spec).build())
    assert replayed(window, "easy") == {1: (500, 1500), 3: (2, 300), 2: (1500, 1600)}
    assert found.late_fixed == 0


def test_the_last_of_a_reservation_begins_though_nothing_else_is_left_to_happen(tmp_path):
    window = a_window(tmp_path, [a_line(1, 0, 10, 700, Reservation="r", **WHOLE), a_line(2, 0, 0, 100)])
    assert replayed(window, "easy") == {2: (0, 100), 1: (100, 700)}


def test_who_reacts_comes_as_long_after_the_end_of_the_job_before(tmp_path):
    lines = [
        a_line(1, 0, 0, 100, User="bob", Timelimit="00:02:00", **WHOLE),
        a_line(2, 1, 900, 1000),  # it really began late; a replay begins it at 100
        a_line(3, 1060, 1060, 1100),
        a_line(4, 1100 + THINK_S + 1, 2500, 2600),
        a_line(5, 1060, 1060, 1100, User="eve"),
        a_line(6, 1060, 1060, 1100, User="max"),
        a_line(7, 1100 + THINK_S, 2500, 2600, User="max"),
        a_line(8, 2600, 2700, 2800, User="max"),
    ]
    window = a_window(tmp_path, lines)
    ids = [item.job.id for item in window.jobs]
    told = {(ids[at], ids[next_], s) for at, pairs in session_dependencies(window).items() for next_, s in pairs}
    assert told == {(2, 3, 60), (6, 7, THINK_S), (7, 8, 0)}, "a pause of just 20 minutes, and none, are of a session"
    starts = replayed(window, "easy", half_closed=True)
    assert starts[2] == (100, 200)
    assert starts[3] == (260, 300)
    assert starts[5] == (1060, 1100), "another user's"
    assert replayed(window, "easy")[3] == (1060, 1100)


def test_a_chain_of_sessions_loses_no_job(tmp_path):
    site = a_site(tmp_path, days=2, jobs_a_day=60)
    window = a_window(tmp_path, site.read_text().splitlines()[1:])
    assert len(session_dependencies(window)) > 3
    assert len(replayed(window, "slurm", half_closed=True)) == len(window.jobs)


def test_the_twin_of_a_site_whose_scheduler_is_the_twin_starts_all_jobs_as_they_were(tmp_path):
    site = a_site(tmp_path, days=1, jobs_a_day=90)
    window = a_window(tmp_path, site.read_text().splitlines()[1:])
    really = {i.job.id: i.recorded_start_s for i in window.jobs}
    found = replay_window(window, ReplayPolicySetup(WhatIfCase.parse("slurm").spec).build())
    assert {i.job.id: int(s) for i, s in zip(window.jobs, found.start_s, strict=True)} == really
    waited = found.start_s - found.arrival_s
    assert (waited > 60).sum() > 5, "a site without waits shows nothing"
