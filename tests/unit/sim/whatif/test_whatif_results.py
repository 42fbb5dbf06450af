"""From a window and cases to findings: significance, losers, and fidelity of the twin."""

import json

import numpy as np
import pytest

from cpsched.errors import InvalidValue, UnknownName
from cpsched_sim.experiments.bootstrap_statistics import (
    BOOTSTRAP_DRAWS,
    BlockBootstrap,
    bootstrap_interval,
    union_interval,
)
from cpsched_sim.whatif.job_classes import classify_by_user, classify_jobs
from cpsched_sim.whatif.schedule_comparison import (
    HALF_CLOSED_MODEL,
    OPEN_MODEL,
    SIGNIFICANT,
    ComparedRuns,
    compare_case_with_twin,
    grade_twin,
    users_waiting_longer,
)
from cpsched_sim.whatif.whatif_cases import WhatIfCase, build_whatif_cases, with_slurm_config_file
from cpsched_sim.whatif.window_metrics import (
    WINDOW_METRICS,
    SharedWindowFacts,
    WindowSchedule,
    actual_schedule,
    compute_window_metrics,
    hourly_usage,
)
from tests.unit.sim.whatif.accounting import a_line, a_site, a_window

DAY = 86_400


@pytest.fixture
def window(tmp_path):
    return a_window(tmp_path, hourly(15, ["bob", "ada", "eve", "kim", "zoe"]))


def hourly(days, users):
    """A job of one of the users by turns each hour, which waits and runs ten minutes."""
    return [a_line(at, 3600 * at, 3600 * at + 600, 3600 * at + 1200, User=users[at % len(users)], NCPUS=at % 4 + 1)
            for at in range(1, 24 * days)]  # fmt: skip


def facts_and_real(window):
    really = actual_schedule(window)
    cores = np.array([item.job.request.units * item.job.request.per_unit[0] for item in window.jobs], np.int64)
    return SharedWindowFacts.of(window, BlockBootstrap.of(window.from_s, window.to_s), cores, [really]), really


def later(made, by_s):
    return WindowSchedule(made.arrival_s, made.start_s + by_s, made.end_s + by_s)


def compared(window, twin, case, by_class=False):
    """Compare schedules that are later than the real one by these seconds, in the open model or by model."""
    facts, really = facts_and_real(window)
    runs = [
        {model: [later(really, by_s) for by_s in each] for model, each in side.items()}
        for side in (twin if isinstance(twin, dict) else {OPEN_MODEL: [twin]},
                     case if isinstance(case, dict) else {OPEN_MODEL: [case]})
    ]  # fmt: skip
    groupings = classify_jobs(window, facts.processors) if by_class else []
    return compare_case_with_twin(facts, facts, ComparedRuns(really, *runs), groupings)


# ------------------------------------------------------------------------------------------ resampled weeks


@pytest.mark.parametrize(
    ("lasts_s", "kind", "length_s", "count"),
    [
        (60 * DAY, "weeks", 7 * DAY, 9), (42 * DAY, "weeks", 7 * DAY, 6), (42 * DAY - 1, "days", DAY, 42),
        (6 * DAY, "days", DAY, 6), (6 * DAY - 1, "quarters of days", 21600, 24),
        (36 * 3600, "quarters of days", 21600, 6), (36 * 3600 - 1, "hours", 3600, 36), (6 * 3600, "hours", 3600, 6),
        (6 * 3600 - 1, "ten minutes", 600, 36), (3600, "ten minutes", 600, 6), (3599, "minutes", 60, 60),
        (360, "minutes", 60, 6), (299, "minutes", 60, 5), (0, "minutes", 60, 1),
    ],
)  # fmt: skip
def test_uses_longest_blocks_that_are_enough(lasts_s, kind, length_s, count):
    blocks = BlockBootstrap.of(100, 100 + lasts_s)
    assert (blocks.kind, blocks.length_s, blocks.count, blocks.has_enough_blocks) == (kind, length_s, count, count >= 6)
    assert blocks.drawn.shape == (BOOTSTRAP_DRAWS, count)
    assert (blocks.drawn.sum(axis=1) == count).all()
    assert blocks.block_of_times(np.array([0, 100, 99 + length_s, 100 + length_s, 10**9])).tolist() == [
        0, 0, 0, min(1, count - 1), count - 1,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("twin", "case", "expected"),
    [
        (10, -300, {"difference": -310, "interval": (-310, -310), "twin_error": 10, "verdict": SIGNIFICANT}),
        (400, 100, {"difference": -300, "verdict": "not significant: the twin's own error is larger"}),
        # the interval covers all seeds and user models
        ({OPEN_MODEL: [0], HALF_CLOSED_MODEL: [5]}, {OPEN_MODEL: [-100, -50], HALF_CLOSED_MODEL: [25]},
         {"difference": -75, "interval": (-100, 20), "half_closed": 20,
          "verdict": "not significant: the interval includes zero"}),
    ],
)  # fmt: skip
def test_reports_gain_above_twin_error(window, twin, case, expected):
    row = compared(window, twin, case)["figures"][0]
    assert {name: row[name] for name in expected} == expected


def test_findings_are_plain_values_by_class(window):
    found = json.loads(json.dumps(compared(window, 0, 9, by_class=True)))
    assert found["figures"][0]["difference"] == 9
    assert {each["kind"] for each in found["classes"]} >= {"size", "hour of the week"}


def test_too_few_blocks_give_no_interval(tmp_path):
    window = a_window(tmp_path, [a_line(1, 0, 60, 120), a_line(2, 200, 400, 500)])
    assert not facts_and_real(window)[0].blocks.has_enough_blocks
    row = compared(window, 0, -50)["figures"][0]
    verdict = "not significant: no interval, the window is too short"
    assert (row["difference"], row["interval"], row["verdict"]) == (-50, None, verdict)


@pytest.mark.parametrize(
    ("days", "users", "why"), [(13, "abcdefg", "13.0 days and 7 users"), (15, "abcd", "15.0 days and 4 users")]
)
def test_few_days_or_users_are_not_significant(tmp_path, days, users, why):
    found = compared(a_window(tmp_path, hourly(days, users)), 0, -300, by_class=True)
    told = f"not significant: {why}; a verdict needs 14 days and 5 users"
    assert (found["figures"][0]["verdict"], found["classes"][0]["verdict"]) == (told, told)


def test_constant_figure_has_interval_of_zero_width():
    blocks = BlockBootstrap.of(0, 10 * DAY)
    block = blocks.block_of_times(np.arange(100) * DAY // 10)
    point, draws = blocks.ratios_with_draws(blocks.sums_by_block(block, 7.0), blocks.sums_by_block(block, 1.0))
    assert point[0] == 7
    assert bootstrap_interval(draws[0], blocks.count) == (7, 7)


def test_quantiles_of_draws_are_near_quantile():
    blocks = BlockBootstrap.of(0, 10 * DAY)
    wait_s = np.arange(1.0, 1001)
    point, draws = blocks.wait_quantile(np.arange(1000) % 10, wait_s, 0.5)
    assert point == pytest.approx(500.5)
    assert np.all(np.abs(draws / 500.5 - 1) < 0.06)


def test_union_covers_all_intervals():
    assert union_interval((1, 3), None, (2, 5)) == (1, 5)
    assert union_interval(None) is None


# ------------------------------------------------------------------------------------------ figures


def test_computes_figures_of_schedule(tmp_path):
    whole = {"NNodes": 5, "NCPUS": 20, "NodeList": "a[1-3],b[1-2]"}
    window = a_window(tmp_path, [a_line(1, 0, 0, 7200, **whole), a_line(2, 0, 7200, 9000), a_line(3, 7260, 7260, 7300)])
    facts, really = facts_and_real(window)
    computed = (each for each, _ in compute_window_metrics(facts, really))
    value = dict(zip((metric.name for metric in WINDOW_METRICS), computed, strict=True))
    expected = {
        "mean wait": 2400, "median wait": 0, "longest wait": 7200, "jobs that waited an hour and more": 100 / 3,
        "mean wait of wide jobs": 2400,  # a tenth of 20 cores: all of them
        "GPUs empty though somebody waited for one": np.nan,
    }  # fmt: skip
    assert {name: value[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    # the window begins a minute before midnight
    assert hourly_usage(facts, really).used[0] == pytest.approx(20 * 59 / 60)


def test_capacity_counts_as_unused_only_while_jobs_wait(tmp_path):
    lines = [a_line(1, 0, 3600, 7200), a_line(2, 14400, 14400, 14460)]
    empty = hourly_usage(*facts_and_real(a_window(tmp_path, lines))).empty
    assert empty[[0, 3]].tolist() == pytest.approx([20 * 59 / 60, 0])


# ------------------------------------------------------------------------------------------ significance


def test_lists_only_losers_worst_first(tmp_path, monkeypatch):
    """Users by the sum of what their jobs wait longer: eve more than bob, ada less, and for max it is all the same."""
    monkeypatch.setattr("cpsched_sim.whatif.schedule_comparison.MAX_LISTED_LOSERS", 4)
    names = ("ada", "bob", "bob", "eve", "max", "old")
    lines = [a_line(at + 1, 3600 * at, 3600 * at + 600, 3600 * at + 1200, User=names[at % 6]) for at in range(24)]
    window = a_window(tmp_path, lines)
    facts, really = facts_and_real(window)
    more_s = np.array([{"ada": -60, "bob": 30, "eve": 90, "max": 0, "old": 5}[item.job.user] for item in window.jobs])
    case = WindowSchedule(really.arrival_s, really.start_s + more_s, really.end_s)
    runs = {OPEN_MODEL: [really]}, {OPEN_MODEL: [case]}
    rows = users_waiting_longer(facts, *runs, classify_by_user(window))
    assert [tuple(row.values()) for row in rows] == [
        ("eve", 4, 600, 690, 360), ("bob", 8, 600, 630, 240), ("old", 4, 600, 605, 20),
    ]  # fmt: skip
    monkeypatch.setattr("cpsched_sim.whatif.schedule_comparison.MAX_LISTED_LOSERS", 1)
    assert [row["user"] for row in users_waiting_longer(facts, *runs, classify_by_user(window))] == ["eve"]


@pytest.mark.parametrize(
    ("really_s", "twin_s", "use_off", "by_size_s", "grade"),
    [
        *((*case[:3], 0.0, case[3]) for case in (
            (600, 650, 0.01, "good"), (6000, 6800, 0.01, "good"), (6000, 8000, 0.0, "fair"), (6000, 11000, 0, "poor"),
            (6000, 13000, 0, "hopeless"), (6000, 2500, 0, "hopeless"), (0, 50, 0, "good"), (600, 600, 0.3, "hopeless"),
            (6000, 6900, 0, "good"), (6000, 6901, 0, "fair"), (6000, 8400, 0, "fair"), (6000, 8401, 0, "poor"),
            (6000, 12000, 0, "poor"), (6000, 12001, 0, "hopeless"), (8400, 6000, 0, "fair"), (30, 90, 0, "good"),
            (30, 91, 0, "hopeless"), (600, 600, 0.2, "good"), (600, 600, 0.21, "hopeless"),
        )),
        # only the mean is correct
        (6000, 6000, 0.0, 2000, "fair"),
        (6000, 6000, 0.0, 50, "good"),
    ],
)  # fmt: skip
def test_grades_twin(really_s, twin_s, use_off, by_size_s, grade):
    assert grade_twin(really_s, twin_s, use_off, by_size_s)[0] == grade


def test_computes_classes_of_size_and_length(tmp_path, monkeypatch):
    """On a machine of 400 processors a job of 40, just a tenth, is wide."""
    monkeypatch.setattr("cpsched_sim.whatif.job_classes.machine_processors", lambda window: 400)
    runs_s = (599, 600, 3599, 3600, 21599, 21600, 86399, 86400)
    lines = [a_line(at + 1, at, at, at + run_s, Timelimit="3-00:00:00") for at, run_s in enumerate(runs_s)]
    processors = np.array((1, 2, 4, 5, 16, 17, 39, 40))
    found = {each.kind: each for each in classify_jobs(a_window(tmp_path, lines), processors)}
    expected = {
        "size": ["1", "2 to 4", "2 to 4", "5 to 16", "5 to 16", "17 to 64", "17 to 64",
                 "wide: 10 % of the machine and more"],
        "length": ["below 10 min", "10 min to 1 h", "10 min to 1 h", "1 to 6 h", "1 to 6 h", "6 h to 1 day",
                   "6 h to 1 day", "1 day and more"],
    }  # fmt: skip
    for kind, names in expected.items():
        assert [found[kind].names[at] for at in found[kind].of] == names
        assert found[kind].names == tuple(dict.fromkeys(names))


# ------------------------------------------------------------------------------------------ cases


def test_case_is_policy_with_site_changes():
    case = WhatIfCase.parse("advise / quantile objective=slowdown walltimes=0.5")
    assert (case.spec.dispatcher, case.spec.predictor, case.changes) == ("advised", "quantile", {"walltimes": "0.5"})
    assert case.spec.dispatcher_settings == {"every_s": "30", "objective": "slowdown"}
    assert WhatIfCase.parse("scheduler_parameters=bf_interval=60").spec.dispatcher == "slurm"


@pytest.mark.parametrize(
    ("text", "seeds"), [("lookahead", ["0", "1", "2"]), ("easy", [None]), ("lookahead seed=7", ["7"])]
)
def test_random_policy_has_several_seeds(text, seeds):
    specs = WhatIfCase.parse(text).policies_by_seed(3)
    assert [spec.dispatcher_settings.get("seed") for spec in specs] == seeds


def test_parses_cases_from_command_line():
    found = build_whatif_cases(
        ["easy", "easy"], ["scheduler_parameters=bf_interval=60", "reserved=parts"], {"add-nodes": "2", "like": "a1"},
        "p.yaml",
    )  # fmt: skip
    assert [(case.spec.dispatcher, dict(case.changes)) for case in found] == [
        ("easy", {}), ("slurm", {}), ("slurm", {"policy": "p.yaml"}), ("slurm", {"add-nodes": "2", "like": "a1"}),
    ]  # fmt: skip
    assert found[1].spec.dispatcher_settings == {"scheduler_parameters": "bf_interval=60", "reserved": "parts"}


def test_case_parameters_stand_beside_configuration(tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(
        "SchedulerType = sched/backfill\nSchedulerParameters = bf_interval=60,bf_max_job_test=900,defer\n"
    )
    told = {text: with_slurm_config_file(WhatIfCase.parse(text), config).spec.dispatcher_settings
            for text in ("slurm", "scheduler_parameters=BF_interval=7", "advise", "easy")}  # fmt: skip
    assert told == {
        "slurm": {"config_file": str(config)},
        "scheduler_parameters=BF_interval=7": {"scheduler_parameters": "BF_interval=7", "config_file": str(config)},
        "advise": {"every_s": "30", "config_file": str(config)}, "easy": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("PriorityWeightAge=1000", InvalidValue, "--with-policy"),
        ("slurm prioritymaxage=1", InvalidValue, "--with-policy"),
        ("BF_interval=60", InvalidValue, "scheduler_parameters=bf_interval=NUMBER"),
        ("scheduler_parameters=bf_interval=0", InvalidValue, "from 1 to 10,800"),
        ("scheduler_parameters=bf_nonsense=3", UnknownName, "bf_nonsense"),
        ("advise nonsense=3", UnknownName, "nonsense"),
        ("controll", InvalidValue, "control"),
        ("control intervall=3", InvalidValue, "interval"),
        ("advise walltime=0.5", InvalidValue, "walltimes"),
        ("control least-stranded-gpus=yes", InvalidValue, "must be true or false"),
        ("advise least-stranded-gpus=true", InvalidValue, "applies to a bridge that starts jobs"),
        ("add-nodes=none", InvalidValue, "must be a whole number from 1"),
        ("walltimes=2", InvalidValue, "above 0 and at most 1"),
        ("into=main", InvalidValue, "requires remove-partition"),
        ("like=a", InvalidValue, "requires add-nodes"),
        ("walltimes=", InvalidValue, "must have a value"),
        ("easy 'x", InvalidValue, "must be quoted as in a shell"),
        ("lukahead", UnknownName, "unknown dispatcher 'lukahead'"),
    ],
)
def test_invalid_setting_names_its_owner_before_reading(text, error, says):
    with pytest.raises(error, match=says):
        WhatIfCase.parse(text)


@pytest.mark.parametrize(
    ("case", "nodes_of_b", "partitions", "queues", "walltimes_s"),
    [
        ("add-nodes=2 like=b1", 4, ["main", "old"], ["old", "main"], [3600, 36_000]),
        ("remove-partition=old", 2, ["main"], ["main", "main"], [3600, 36_000]),
        ("walltimes=0.1", 2, ["main", "old"], ["old", "main"], [360, 3600]),
        ("walltimes=0.001", 2, ["main", "old"], ["old", "main"], [100, 100]),
    ],
)
def test_case_changes_window(tmp_path, case, nodes_of_b, partitions, queues, walltimes_s):
    window = WhatIfCase.parse(case).apply_to_window(
        a_window(tmp_path, [a_line(1, Partition="old"), a_line(2, Timelimit="10:00:00")])
    )
    assert (window.system.node_types["b"].count, [*window.system.partitions]) == (nodes_of_b, partitions)
    assert [item.job.queue for item in window.jobs] == queues
    assert [item.job.walltime_s for item in window.jobs] == walltimes_s


@pytest.mark.parametrize(
    "case", ["add-nodes=2 like=zz", "add-nodes=2", "remove-partition=zz", "remove-partition=old into=zz"]
)
def test_rejects_change_that_site_cannot_have(tmp_path, case):
    window = a_window(tmp_path, [a_line(1, Partition="old")])
    with pytest.raises(InvalidValue):
        WhatIfCase.parse(case).apply_to_window(window)


def test_hours_of_week_use_given_zone(tmp_path):
    lines = [a_line(1, 3600, 3600, 3700), a_line(2, 20 * 3600, 20 * 3600, 20 * 3600 + 5)]
    windows = (a_window(tmp_path, lines, zone=zone) for zone in ("", "Asia/Tokyo"))
    kinds = [{each.kind: each.names for each in classify_jobs(window, np.ones(2, np.int64))} for window in windows]
    utc, tokyo = (each["hour of the week"] for each in kinds)
    assert utc != tokyo
    assert len(utc) == len(tokyo) == 2


def test_site_has_users_and_waits(tmp_path):
    window = a_window(tmp_path, a_site(tmp_path, days=1).read_text().splitlines()[1:])
    assert set(classify_by_user(window).names) == {"ada", "bob", "eve"}
