"""Licenses in synthetic accounting data: their totals, and the jobs that wait for them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue
from cpsched.model import NEVER
from cpsched.site.admission import PendingJobLimitsAndUsage, decide_respecting_limits, with_queue_subset
from cpsched_sim.cli import app
from cpsched_sim.cluster.simulated_accounting import LicenseRequestsAndTotals, LicenseUsage
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from cpsched_sim.errors import InvalidSystem, InvalidTrace
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.whatif.license_limits import parse_license_totals, read_license_totals
from cpsched_sim.whatif.slurm_collection import collect_from_slurm
from cpsched_sim.whatif.slurm_collection_folder import list_site_changes
from cpsched_sim.whatif.whatif_cases import DecisionTiming, WhatIfCase
from cpsched_sim.whatif.whatif_io import WhatIfInputs, read_whatif_window
from cpsched_sim.whatif.whatif_replay import EVENT_TIMING, replay_window
from cpsched_sim.whatif.whatif_window import JUDGED, RUNNING, WindowPeriodOptions
from tests.unit.sim.whatif.accounting import FIRST_S, SYSTEM, a_file, a_line, a_window, clock, replayed
from tests.unit.sim.whatif.test_slurm_collection import NOW, answers, at

DAY = 86_400
ONE = {"AllocTRES": "cpu=4,license/matlab=1,node=1"}
TWO = {"AllocTRES": "cpu=4,license/matlab=2,node=1"}
GAVE_UP = {"State": "CANCELLED by 7", "ReqTRES": "cpu=4,license/matlab=1,node=1"}
EVERYBODY = ["fcfs", "easy", "slurm", "lookahead effort=20", "advised effort=20"]
LIMITED = """
accounts: { phys: { users: [ada, bob] } }
qos: { normal: { limits: { GrpTRES: license/matlab=2 } }, free: {} }
"""


# ------------------------------------------------------------------------------------------ who waits for whom


@pytest.mark.parametrize("text", EVERYBODY)
def test_second_job_waits_for_single_license(tmp_path, text):
    lines = [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 401, **ONE), a_line(3, 2, 2, 302)]
    found = replayed(a_window(tmp_path, lines, totals={"matlab": 1}), text)
    assert (found[1], found[3][0] - 2 < 5) == ((0, 500), True), found
    assert 500 <= found[2][0] < 505, "Slurm's main loop may come some seconds later"
    assert all(start < 10 for start, _ in replayed(a_window(tmp_path, lines), text).values()), "they are not counted"


@pytest.mark.parametrize(
    ("text", "totals", "lines", "expected"),
    [
        ("easy", {"matlab": 2}, [a_line(at, at, at, 500 + at, **ONE) for at in (1, 2, 3)],
         [(1, 501), (2, 502), (501, 1001)]),
        # a job that needs several licenses waits and is passed
        ("easy", {"matlab": 2},
         [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 401, **TWO), a_line(3, 2, 2, 302, **ONE)],
         [(0, 500), (2, 302), (500, 900)]),
        # each license is counted separately
        ("easy", {"matlab": 1, "ansys": 1},
         [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 301, AllocTRES="license/ansys=1"),
          a_line(3, 2, 2, 900, AllocTRES="license/ansys=1,license/matlab=1")],
         [(0, 500), (1, 301), (500, 1398)]),
        # names are compared in lower case
        ("easy", {"matlab": 1}, [a_line(1, 0, 0, 500, AllocTRES="license/MatLab=1"), a_line(2, 1, 1, 401, **ONE)],
         [(0, 500), (500, 900)]),
        # a requeued job holds its license in each run
        ("fcfs", {"matlab": 1},
         [a_line(1, 0, 0, 100, State="NODE_FAIL", **ONE), a_line(1, 100, 100, 400, **ONE),
          a_line(2, 50, 50, 90, **ONE)],
         [(0, 100), (100, 140), (140, 440)]),
        # a cancelled job holds it from its replayed start
        ("fcfs", {"matlab": 1},
         [a_line(1, 0, 0, 100, **ONE), a_line(2, 1, None, 400, **GAVE_UP), a_line(3, 2, 2, 62, **ONE)],
         [(0, 100), (100, 400), (400, 460)]),
    ],
)  # fmt: skip
def test_jobs_wait_until_licenses_are_free(tmp_path, text, totals, lines, expected):
    assert sorted(replayed(a_window(tmp_path, lines, totals=totals), text).values()) == expected


def test_running_job_at_window_start_holds_license_until_end(tmp_path):
    lines = [a_line(1, 0, 10, DAY + 500, **ONE), a_line(2, DAY + 5, DAY + 500, DAY + 600, **ONE)]
    window = a_window(tmp_path, lines, WindowPeriodOptions(from_=clock(DAY)), totals={"matlab": 1})
    assert window.role.tolist() == [RUNNING, JUDGED]
    assert replayed(window, "easy") == {1: (DAY, DAY + 500), 2: (DAY + 500, DAY + 600)}


SUCCESSIVE = [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 499, 600, **ONE), a_line(3, 2, 500, 700, **ONE),
              a_line(4, 3, 600, 700, **ONE)]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "total", "from_s", "notes"),
    [
        (SUCCESSIVE, 1, -60, 1),
        (SUCCESSIVE, 2, -60, 0),
        # a job that runs at the start of the window counts as a user
        ([a_line(1, 0, 10, DAY + 500, **ONE), a_line(2, DAY + 5, DAY + 200, DAY + 300, **ONE)], 1, DAY, 1),
        # cancelled jobs do not
        ([a_line(at, at, None, 400, **GAVE_UP) for at in (2, 3)] + [a_line(4, 4, 500, 600, **ONE)], 1, -60, 0),
        ([a_line(1, 0, 0, 500, AllocTRES="license/MatLab=1"), a_line(2, 1, 1, 401, **ONE)], 2, -60, 0),
    ],
)
def test_reports_recorded_use_above_total(tmp_path, lines, total, from_s, notes):
    window = a_window(tmp_path, lines, WindowPeriodOptions(from_=clock(from_s)), totals={"matlab": total})
    told = [note for note in window.notes if "were in use at once" in note]
    said = "license matlab: 2 were in use at once, more than the total of 1 in the replay"
    assert [note.startswith(said) for note in told] == [True] * notes


def test_reservation_job_is_first_but_waits_for_license(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000, **ONE),
        a_line(2, 1, 2000, 2500, **ONE),
        a_line(3, 0, 500, 1500, Reservation="r", **ONE),
    ]
    window = a_window(tmp_path, lines, totals={"matlab": 1})
    assert replayed(window, "easy") == {1: (0, 1000), 3: (1000, 1500), 2: (1500, 2000)}
    assert replay_window(window, ReplaySpec(WhatIfCase.parse("easy").spec).build()).late_fixed == 1


@pytest.mark.parametrize(
    ("policy", "first", "totals", "expected"),
    [
        *(
            (LIMITED, TWO, totals, {1: 0, 2: 500, 3: third})
            for totals, third in ((None, 2), ({"matlab": 10}, 2), ({"matlab": 4}, 2), ({"matlab": 3}, 2),
                                  ({"matlab": 2}, 900))
        ),
        ("accounts: { phys: { users: [ada] } }\nenforce: []\n", ONE, {"matlab": 1}, {1: 0, 2: 500, 3: 900}),
    ],
)  # fmt: skip
def test_limits_of_qos_and_licenses_apply_without_the_other(tmp_path, policy, first, totals, expected):
    lines = [a_line(1, 0, 0, 500, **first), a_line(2, 1, 1, 401, **first), a_line(3, 2, 2, 302, QOS="free", **ONE)]
    site = parse_site_policy_file(Path("policy.yaml"), policy)
    starts = replayed(a_window(tmp_path, lines, site=site, totals=totals), "easy")
    assert {job: start for job, (start, _) in starts.items()} == expected


def some_lines(draw, names):
    """120 jobs of half a day: some ran at the first midnight, some gave up, some belong to a reservation."""
    lines = []
    for id in range(120):
        submit = DAY + int(draw.integers(-2_000, 20_000))
        start = submit + int(draw.integers(0, 3_000))
        asked = ",".join(f"license/{name}={draw.integers(1, 3)}" for name in names if draw.random() < 0.5)
        facts = {"AllocTRES": asked, "Reservation": "r" if draw.random() < 0.1 else ""}
        if gave_up := draw.random() < 0.1:
            facts = {"ReqTRES": asked, "State": "CANCELLED by 7"}
        facts |= {"User": str(draw.choice(["ada", "bob"])), "QOS": str(draw.choice(["normal", "free"]))}
        end = start + int(draw.integers(60, 4_000))
        cores = int(draw.integers(1, 5))
        lines.append(a_line(id, submit, None if gave_up else start, end, NCPUS=cores, Timelimit="02:00:00", **facts))
    return lines


@pytest.mark.parametrize(
    ("text", "pace"),
    [*((text, EVENT_TIMING) for text in EVERYBODY), *((text, DecisionTiming(30, 7.5)) for text in EVERYBODY[1::2])],
)
@pytest.mark.parametrize("half_closed", [False, True])
@pytest.mark.parametrize("site", ["", LIMITED])
def test_usage_never_exceeds_total(tmp_path, text, half_closed, pace, site):
    window_lines = some_lines(np.random.default_rng(len(text) + half_closed), totals := {"matlab": 3, "ansys": 2})
    policy = parse_site_policy_file(Path("policy.yaml"), site) if site else None
    window = a_window(tmp_path, window_lines, WindowPeriodOptions(from_=clock(DAY)), site=policy, totals=totals)
    found = replay_window(window, ReplaySpec(WhatIfCase.parse(text).spec).build(window.jobs), half_closed, pace=pace)
    assert (found.start_s[window.role == JUDGED] != NEVER).all(), "everybody has a turn"
    full = dict.fromkeys(totals, 0)
    for name, total in totals.items():
        held = np.array([dict(window.licenses.asked.get(at, ())).get(name, 0) for at in range(len(window.jobs))])
        ran = found.start_s != NEVER
        for at_s in found.start_s[ran]:
            in_use = held[ran & (found.start_s <= at_s) & (found.end_s > at_s)].sum()
            assert in_use <= total
            full[name] += in_use == total
    assert all(full.values()), "they were short at times, or this shows nothing"


# ------------------------------------------------------------------------------------------ notes


def test_job_needing_more_than_total_is_left_out_and_reported(tmp_path):
    lines = [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 401, **TWO), a_line(3, 2, 2, 402, **TWO)]
    window = a_window(tmp_path, lines, totals={"matlab": 1})
    assert [item.job.id for item in window.jobs] == [1]
    assert dict(window.left_out) == {"does not fit: license/matlab only 1 exist": 2}


def test_reports_unlimited_licenses_without_total(tmp_path):
    other = {"AllocTRES": "license/ansys=7,license/nastran@flex=1"}
    lines = [a_line(1, 0, 0, 500, **other), a_line(2, 1, 1, 401, **other), a_line(3, 2, 2, 402, **ONE)]
    window = a_window(tmp_path, lines, totals={"matlab": 1, "abaqus": 4})
    assert replayed(window, "easy") == {1: (0, 500), 2: (1, 401), 3: (2, 402)}
    assert window.licenses.totals == {"matlab": 1}
    assert list(window.notes[-3:]) == [
        "licenses limited in the replay: matlab 1",
        "licenses not replayed, because their totals are unknown (set --licenses): "
        "ansys (2 jobs), nastran@flex (2 jobs)",
        "licenses that no job requests, as far as AccountingStorageTRES tracks them: abaqus",
    ]
    plain = a_window(tmp_path, [a_line(1, 0, 0, 500), a_line(2, 1, 1, 401)])
    assert not any("license" in note for note in plain.notes)


def test_escapes_license_names(tmp_path):
    lines = [a_line(1, 0, 0, 500, AllocTRES="license/\x1b[31m=2"), a_line(2, 0, 0, 500)]
    for totals in (None, {"\x1b[31m": 1}, {"\x1b[31m": 2}):
        window = a_window(tmp_path, lines, totals=totals)
        assert not any("\x1b" in text for text in (*window.notes, *window.left_out))


# ------------------------------------------------------------------------------------------ what accounting says


def test_uses_allocated_or_requested_licenses(tmp_path):
    """With `-L matlab|ansys` Slurm gives one of the two."""
    lines = [
        a_line(1, 0, 0, 500, ReqTRES="license/ansys=2,license/matlab=2", AllocTRES="cpu=4,license/ansys=2"),
        a_line(2, 0, 0, 500, ReqTRES="cpu=4,license/matlab=2", AllocTRES="cpu=4"),
        a_line(3, 0, 0, 500, ReqTRES="cpu=4", AllocTRES="license/ansys=0,cpu=4"),
        a_line(4, 0, 0, 500, ReqTRES="gres/license=3", AllocTRES="license=3"),
        a_line(5, 0, None, 400, State="CANCELLED by 7", ReqTRES="license/b=1,license/a=3"),
    ]
    history = read_history(a_file(tmp_path, lines))
    assert history.licenses == {1: (("ansys", 2),), 2: (("matlab", 2),), 5: (("a", 3), ("b", 1))}
    assert len({record.ask for record in history.ran}) == 1, "licenses are on no node"


def test_broken_line_passes_licenses_to_no_other_job(tmp_path):
    """A second line of job 2 is passed over, as is one with a limit that no job has."""
    lines = [
        a_line(2, 50, 50, 90, **ONE),
        a_line(2, 50, 50, 90, **TWO),
        a_line(3, 50, 50, 90, **TWO, Timelimit="99999999-00:00:00"),
        a_line(4),
    ]
    assert read_history(a_file(tmp_path, lines), lenient=True).licenses == {2: (("matlab", 1),)}


@pytest.mark.parametrize("amount", ["x", "", "1.5", "-1", "9" * 30])
def test_invalid_amount_makes_line_broken(tmp_path, amount):
    path = a_file(tmp_path, [a_line(1, AllocTRES=f"license/matlab={amount}"), a_line(2)])
    with pytest.raises(InvalidTrace, match="license/matlab"):
        read_history(path)
    assert [record.id for record in read_history(path, lenient=True).ran] == [2]


# ------------------------------------------------------------------------------------------ how many there are


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("No licenses configured in Slurm.\n", {}),
        ("", {}),
        ("LicenseName=a Total=100 Used=2 Free=98 Remote=no\n", {"a": 100}),  # 17.11, scontrol -o
        ("LicenseName=a\n    Total=100 Used=2 Free=98 Remote=no\nLicenseName=b\n    Total=0 Used=0 Free=0 Remote=no\n",
         {"a": 100, "b": 0}),
        ("LicenseName=Nastran@flex Total=50 Used=0 Free=50 Reserved=3 Remote=yes LastConsumed=7 LastDeficit=0 "
         "LastUpdate=2026-02-28T17:01:44\n", {"nastran@flex": 50}),  # 23.11
        ("LicenseName=r@s\n    Total=5 Used=0 Free=5 Reserved=0 Remote=yes\n    LastConsumed=0 LastDeficit=0 "
         "LastUpdate=Unknown\nLicenseName=c\n    Total=1 Used=0\n", {"r@s": 5, "c": 1}),
        ("LicenseName=flat Total=12 Used=0 Free=12 Reserved=0 Remote=no Nodes=n[1-8] Mode=1\n"
         "LicenseName=flat Total=24 Used=0 Free=24 Reserved=0 Remote=no Nodes=n[9-16] Mode=1\nLicenseName=c Total=1\n",
         {"c": 1}),  # 26.05, hierarchical resources
        ("LicenseName=one\n    Total=12 Used=0\n    Nodes=n[1-8] Mode=2\nLicenseName=c\n    Total=1\n", {"c": 1}),
        ("LicenseName=a Total=1\nLicenseName=A Total=2\n", {}),
    ],
)  # fmt: skip
def test_reads_totals_of_each_slurm_version(tmp_path, text, found):
    path = tmp_path / "licenses.txt"
    path.write_text(text)
    assert read_license_totals(path) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("LicenseName=a Total=1\nLicenseName=b Total=many\n", r"txt:2: Total: many: must be a whole number of at most"),
        ("LicenseName=a Total=-4\n", r"txt:1: Total: -4: must be"),
        ("LicenseName=a Total=\n", r"txt:1: Total: : must be"),
        ("LicenseName=a Total=٣\n", r"txt:1: Total: "),
        (f"LicenseName=a Total={'9' * 25}\n", r"txt:1: Total: 9+: must be"),
        ("    Total=4 Used=0\n", r"txt:1: LicenseName: : must come before its Total"),
    ],
)
def test_invalid_total_names_its_line(tmp_path, text, why):
    path = tmp_path / "licenses.txt"
    path.write_text(text)
    with pytest.raises(InvalidSystem, match=why):
        read_license_totals(path)


def test_parses_totals_in_slurm_conf_syntax():
    assert parse_license_totals("matlab=10, Ansys@flex:4 ,license/b=0") == {"matlab": 10, "ansys@flex": 4, "b": 0}


@pytest.mark.parametrize(
    "text", ["", ",", "matlab", "matlab=", "=3", "matlab=-1", "matlab=1.5", "a=1,b", "a=" + "9" * 18]
)
def test_rejects_invalid_totals(text):
    with pytest.raises(InvalidValue, match="--licenses"):
        parse_license_totals(text)


# ------------------------------------------------------------------------------------------ from folder to report


def a_folder(path, said=None, asks="cpu=4,license/matlab=2,mem=1G"):
    """What is collected of a site whose jobs ask for two of a license each."""

    def ask(command):
        if command == "scontrol -o show license" and said is not None:
            return said
        return answers(command).replace("cpu=4,mem=1G", asks)

    collect_from_slurm(2, path, False, ask, NOW)
    return path


def of_folder(path, totals=None, earlier=None):
    period = WindowPeriodOptions(from_=at(0))
    return read_whatif_window(WhatIfInputs(source=path, period=period, earlier=earlier, license_totals=totals or {}))


@pytest.mark.parametrize(
    ("said", "asks", "given", "totals", "digest"),
    [
        (None, "cpu=4,license/matlab=2,mem=1G", {}, {"matlab": 2}, "matlab=2"),
        (None, "cpu=4,license/matlab=2,mem=1G", {"matlab": 6, "ansys": 1}, {"matlab": 6}, "matlab=6"),
        *(
            (said, "cpu=4,mem=1G", {}, {}, None)
            for said in ("No licenses configured in Slurm.\n", "LicenseName=b Total=3\n", None)
        ),
    ],
)
def test_given_totals_precede_collected_ones(tmp_path, said, asks, given, totals, digest):
    """The digest omits unused licenses, so what an earlier version has replayed is found again."""
    window, digests = of_folder(a_folder(tmp_path / "site", said, asks), given)
    assert (dict(window.licenses.totals), digests.get("licenses")) == (totals, digest)


def test_reads_folder_collected_without_licenses(tmp_path):
    (a_folder(tmp_path / "site") / "licenses.txt").unlink()
    window, digests = of_folder(tmp_path / "site")
    assert (window.licenses.totals, "licenses" in digests) == ({}, False)
    assert any("(set --licenses): matlab (39 jobs)" in note for note in window.notes)


def test_broken_total_in_folder_names_file_and_line(tmp_path):
    with pytest.raises(InvalidSystem, match=r"licenses.txt:1: Total: \?"):
        of_folder(a_folder(tmp_path / "site", "LicenseName=matlab Total=?\n"))


def test_reports_changed_totals(tmp_path):
    earlier, later = a_folder(tmp_path / "one", "LicenseName=matlab Total=5\n"), a_folder(tmp_path / "two")
    assert list_site_changes(earlier, later) == ["license matlab: Total was 5, is 2"]
    (earlier / "licenses.txt").unlink()
    assert list_site_changes(earlier, later) == []


def test_command_line_sets_totals_by_name(tmp_path):
    (tmp_path / "small.yaml").write_text(SYSTEM)
    jobs = a_file(tmp_path, [a_line(n, 10 * n, 500 * n, 500 * (n + 1), **ONE) for n in range(12)])
    system = str(tmp_path / "small.yaml")
    common = ["whatif", "run", str(jobs), "--system", system, "--no-sessions", "--from", clock(-60)]
    found = []
    for at_, more in enumerate((["--licenses", "matlab:1"], [])):
        said = CliRunner().invoke(app, [*common, "--anyway", "--out", str(tmp_path / f"{at_}"), "--json", *more])
        found.append(json.loads(said.stdout))
    assert found[0]["fidelity"]["verdict"]["grade"] == "good", "they are why jobs waited"
    assert found[1]["fidelity"]["verdict"]["grade"] == "hopeless"
    assert [each["digests"].get("licenses") for each in found] == ["matlab=1", None]
    assert "licenses limited in the replay: matlab 1" in (tmp_path / "0" / "report.md").read_text()
    assert "licenses not replayed, because their totals are unknown" in (tmp_path / "1" / "report.html").read_text()
    refused = CliRunner().invoke(app, [*common, "--licenses", "matlab", "--out", str(tmp_path / "2")])
    assert (refused.exit_code, "--licenses=matlab: must be NAME=NUMBER" in refused.stderr) == (2, True)


# ------------------------------------------------------------------------------------------ in a round


def a_cluster(window):
    """The machine of a window after all arrivals, before any start."""
    cluster = SimulatedCluster(System(window.system, window.header).cluster)
    cluster.load(window.jobs)
    cluster.advance_without_round(FIRST_S + 3)
    return cluster


def test_reason_is_that_of_slurm_with_usage(tmp_path):
    lines = [a_line(1, 0, 0, 500, **TWO), a_line(2, 1, 1, 401, **TWO), a_line(3, 2, 2, 302), a_line(4, 3, 3, 9, **ONE)]
    window = a_window(tmp_path, lines, totals={"matlab": 2})
    play = LicenseUsage.of(window.licenses, len(window.jobs))
    assert play is not None
    cluster = a_cluster(window)
    dispatcher = ReplaySpec(WhatIfCase.parse("easy").spec).build(window.jobs)
    limits = play.add_license_limits(None, cluster.snapshot())
    found = decide_respecting_limits(cluster.snapshot(), limits, dispatcher.decide)
    assert sorted(found.decision.starts.slots.tolist()) == [0, 2]
    assert dict(found.limited) == {
        2: "Licenses: 2 of 2 matlab for the cluster are in use, and the job requests 2",
        4: "Licenses: 2 of 2 matlab for the cluster are in use",
    }
    none = np.array([], np.int64)
    assert (play.count_used(np.array([0, 2, 3])).tolist(), play.count_used(none).tolist()) == ([3], [0])
    assert [play.has_free_licenses(at, np.array([3])) for at in range(3)] == [False, False, True]


def test_queue_without_licenses_uses_site_limits(tmp_path):
    window = a_window(tmp_path, [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 401)], totals={"matlab": 1})
    play, cluster = LicenseUsage.of(window.licenses, len(window.jobs)), a_cluster(window)
    limits = PendingJobLimitsAndUsage()
    assert play is not None
    narrow = with_queue_subset(cluster.snapshot(), np.array([1]))
    assert play.add_license_limits(None, narrow) is None
    assert play.add_license_limits(limits, narrow) is limits
    assert LicenseUsage.of(LicenseRequestsAndTotals.of({0: (("matlab", 1),)}, {"ansys": 1}), 1) is None


@pytest.mark.parametrize(("total", "as_the_site_says"), [(3, True), (2, False)])
def test_sufficient_licenses_use_site_limits(tmp_path, total, as_the_site_says):
    lines = [a_line(1, 0, 0, 500, **ONE), a_line(2, 1, 1, 401, **TWO), a_line(3, 2, 2, 302)]
    window = a_window(tmp_path, lines, totals={"matlab": total})
    play, limits = LicenseUsage.of(window.licenses, len(window.jobs)), PendingJobLimitsAndUsage()
    assert play is not None
    assert (play.add_license_limits(limits, a_cluster(window).snapshot()) is limits) == as_the_site_says
