"""The weeks that are cut from a file, and the judged jobs."""

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.model import NEVER
from cpsched_sim.errors import InputError
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.traces.trace_record import UnitsRequest
from cpsched_sim.whatif.accounting_history import WHOLE_NODES_NOTE, read_history
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_window import (
    GAVE_UP,
    JUDGED,
    LATER,
    QUEUED,
    RESERVED,
    RUNNING,
    WindowPeriodOptions,
    choose_or_guess_system,
)
from tests.unit.sim.whatif.accounting import FIRST_S, a_file, a_line, a_window, clock

DAY = 86_400


def window_from(folder, lines, **span):
    return a_window(folder, lines, WindowPeriodOptions(from_=clock(DAY), **span))


def test_assigns_roles_at_window_bounds(tmp_path):
    """At every bound of the window: what ended just as it begins is not in it, what begins just then waited."""
    lines = [
        a_line(1, 0, 10, DAY),
        a_line(2, 0, 10, DAY + 1),
        a_line(3, DAY - 20, DAY - 1, DAY + 50, Timelimit="00:10:00"),
        a_line(4, DAY - 20, DAY, DAY + 60),
        a_line(5, DAY, DAY + 7, DAY + 90),
        a_line(6, DAY + 99, DAY + 101, DAY + 110),
        a_line(7, DAY + 100, DAY + 101, DAY + 120),
        a_line(8, DAY + 101, DAY + 101, DAY + 120),
        a_line(9, DAY + 102, DAY + 102, DAY + 120),
        a_line(10, DAY + 5, DAY + 30, DAY + 60, Reservation="x"),
        a_line(11, 0, None, DAY, State="CANCELLED"),
        a_line(12, 0, None, DAY + 1, State="CANCELLED"),
    ]
    window = window_from(tmp_path, lines, to=clock(DAY + 100))
    begin, never = FIRST_S + DAY, NEVER - FIRST_S - DAY
    columns = (window.role, window.leaves_s - begin, window.fixed_s - begin, window.real_start_s - begin)
    found = {
        item.job.id: (item.job.submit_s - begin, item.job.walltime_s, item.run_s, *(int(each[at]) for each in columns))
        for at, item in enumerate(window.jobs)
    }
    assert found == {
        2: (0, 1, 1, RUNNING, never, 0, 10 - DAY),
        3: (0, 599, 50, RUNNING, never, 0, -1),
        4: (-20, 3600, 60, QUEUED, never, never, 0),
        5: (0, 3600, 83, JUDGED, never, never, 7),
        6: (99, 3600, 9, JUDGED, never, never, 101),
        7: (100, 3600, 19, LATER, never, never, 101),
        8: (101, 3600, 19, LATER, never, never, 101),
        10: (5, 3600, 30, RESERVED, never, 30, 30),
        12: (-DAY, 3600, 3600, GAVE_UP, 1, never, never),
    }


def test_includes_later_jobs_until_last_judged_start(tmp_path):
    lines = [a_line(1, DAY, DAY + 500, DAY + 600), a_line(2, DAY + 400, DAY + 700, DAY + 800),
             a_line(3, DAY + 501, DAY + 900, DAY + 1000)]  # fmt: skip
    window = window_from(tmp_path, lines, to=clock(DAY + 100))
    assert [(item.job.id, role) for item, role in zip(window.jobs, window.role.tolist(), strict=True)] == [
        (1, JUDGED), (2, LATER),
    ]  # fmt: skip


def test_cancelled_job_leaves_then_and_ineligible_is_absent(tmp_path):
    lines = [
        a_line(1, DAY, DAY, DAY + 100),
        a_line(2, DAY, None, DAY + 70, State="CANCELLED by 7"),
        a_line(3, DAY, None, DAY + 70, State="CANCELLED by 7", Eligible="Unknown"),
        a_line(4, DAY, None, None, State="PENDING"),
        a_line(5, DAY + 1, DAY + 9, None, State="RUNNING"),
        a_line(6, DAY + 1, DAY + 2, DAY + 9),
    ]
    window = window_from(tmp_path, lines)
    leaves = {i.job.id: int(at) for i, at in zip(window.jobs, window.leaves_s, strict=True) if at != NEVER}
    assert leaves == {2: FIRST_S + DAY + 70, 4: FIRST_S + DAY + 100}
    assert (window.role == GAVE_UP).sum() == 2
    assert dict(window.left_out) == {"cancelled before it was eligible": 1}
    running = next(item for item in window.jobs if item.job.id == 5)
    assert running.run_s == 91, "until the file was made"


def test_reservation_job_starts_at_recorded_time(tmp_path):
    lines = [a_line(1, DAY, DAY + 30, DAY + 100, Reservation="maint"), a_line(2, DAY, DAY, DAY + 10)]
    window = window_from(tmp_path, lines)
    assert sorted(window.role.tolist()) == [JUDGED, RESERVED]
    assert sorted(window.fixed_s.tolist()) == [FIRST_S + DAY + 30, NEVER]


@pytest.mark.parametrize("to", ["2027-02-01", ""])
def test_window_without_jobs_names_dates_with_jobs(tmp_path, to):
    told = r"no job that ran became eligible from 2027-.*the file has jobs from 2026-09-\d\d 00:00"
    with pytest.raises(InputError, match=told):
        a_window(tmp_path, [a_line()], WindowPeriodOptions(from_="2027-01-01", to=to))


@pytest.mark.parametrize(("span", "rule"), [({"from_": "yesterday"}, "must be a date"), ({"days": -1}, "positive"),
                                            ({"days": 3, "from_": "2026-01-01"}, "cannot be combined"),
                                            ({"from_": "9999-12-31T23:59:59"}, "years 1 to 9999")])  # fmt: skip
def test_rejects_invalid_period_with_rule(tmp_path, span, rule):
    with pytest.raises(InvalidValue, match=rule):
        a_window(tmp_path, [a_line()], WindowPeriodOptions(**span))


def test_dates_use_zone_of_file(tmp_path):
    there = a_window(tmp_path, [a_line(1, 2 * DAY, 2 * DAY, 2 * DAY + 9)], WindowPeriodOptions(days=1))
    assert there.to_local_time(FIRST_S).hour == 0
    history = read_history(a_file(tmp_path, [a_line(1, 3 * DAY, 3 * DAY, 3 * DAY + 9)]))
    assert history.last_recorded_s == FIRST_S + 3 * DAY + 9


def test_job_that_does_not_fit_is_left_out_and_counted(tmp_path):
    window = window_from(tmp_path, [a_line(1, DAY, DAY, DAY + 9), a_line(2, DAY, DAY, DAY + 9, NCPUS=400)])
    assert len(window.jobs) == 1
    assert sum(window.left_out.values()) == 1
    assert "does not fit" in next(iter(window.left_out))


def test_guesses_system_from_used_nodes(tmp_path):
    history = read_history(a_file(tmp_path, [a_line(1, NodeList="a1"), a_line(2, NodeList="a2", NCPUS=8)]))
    file, by = choose_or_guess_system(history, None, "guessed")
    assert sum(kind.count for kind in file.node_types.values()) == 2
    assert "NodeList" in by


@pytest.mark.parametrize(
    ("line", "ask", "licenses"),
    [
        ("3|48|01:00:00|cpu=3,node=3|cpu=48,gres/gpu=4,node=3",
         UnitsRequest(3, (("cores", 1),), distinct=True, exclusive=True), ()),
        ("1|16|01:00:00|cpu=1,node=1,gres/gpu=1|cpu=1,gres/gpu=1,node=1",
         UnitsRequest(1, (("cores", 1), ("gpus", 1))), ()),
        ("1|1|01:00:00|cpu=1|cpu=1,gres/gpu=1,license/x=1", UnitsRequest(1, (("cores", 1),), exclusive=True),
         (("x", 1),)),
    ],
)  # fmt: skip
def test_unrequested_gpus_mean_whole_nodes(tmp_path, line, ask, licenses):
    """Slurm gives a job of `--exclusive` all of its nodes, GPUs included; they need not be the same on each."""
    head = "JobIDRaw|User|Submit|Start|End|State|NNodes|NCPUS|Timelimit|ReqTRES|AllocTRES"
    times = "2026-09-21T00:00:00|2026-09-21T00:00:00|2026-09-21T00:10:00|COMPLETED"
    path = tmp_path / "jobs.txt"
    path.write_text(f"{head}\n7|ada|{times}|{line}\n")
    found = read_history(path)
    assert ([record.ask for record in found.ran], found.licenses.get(7, ())) == ([ask], licenses)
    assert found.reader.tally.taken[WHOLE_NODES_NOTE] == ask.exclusive


def test_job_keeps_its_named_qos(tmp_path):
    """`normal` is the QOS of jobs that name none that the policy knows; also where a case has another policy."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("qos: { normal: {}, long: {} }\nusers: { qos: normal }\naccounts: { phys: { users: [ada] } }\n")
    names = ("long", "gone", "normal", "long")
    lines = [a_line(at, at, 9 + at, 99 + at, QOS=name) for at, name in enumerate(names)]
    window = a_window(tmp_path, lines, site=load_site_policy_file(policy))
    assert [item.job.qos for item in window.jobs] == ["long", "normal", "normal", "long"]
    other = WhatIfCase.parse(f"slurm policy={policy}").apply_to_window(window)
    assert [item.job.qos for item in other.jobs] == ["long", "normal", "normal", "long"]


def test_jobs_are_in_arrival_order(tmp_path):
    window = window_from(tmp_path, [a_line(2, DAY + 9, DAY + 9, DAY + 99), a_line(1, DAY, DAY + 20, DAY + 30)])
    assert np.all(np.diff([item.job.submit_s for item in window.jobs]) >= 0)
