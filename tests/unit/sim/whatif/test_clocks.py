"""Windows across a clock change, and hosts whose clocks differ from the site's."""

import json
import time

import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.whatif.slurm_collection import collect_from_slurm
from cpsched_sim.whatif.whatif_io import WhatIfInputs, read_whatif_window
from cpsched_sim.whatif.whatif_window import OUTAGE, WindowPeriodOptions
from cpsched_sim.whatif.window_metrics import actual_schedule
from tests.unit.sim.whatif.accounting import SYSTEM
from tests.unit.sim.whatif.test_slurm_collection import NOW, answers, at

BERLIN = TraceDialect(zone="Europe/Berlin")
COLUMNS = "JobIDRaw|User|Partition|Submit|Eligible|Start|End|Elapsed|State|Timelimit|NNodes|NCPUS"


@pytest.fixture
def window_of(tmp_path):
    def of(day, *rows, dialect=BERLIN, lenient=False, to=None):
        (tmp_path / "small.yaml").write_text(SYSTEM)
        lines = [
            f"{id}|ada|main|{day}T{submit}|{day}T{submit}|{day}T{start}|{day}T{end}|{elapsed}|COMPLETED|05:00:00|1|4"
            for id, (submit, start, end, elapsed) in enumerate(rows, start=1)
        ]
        (tmp_path / "jobs.txt").write_text("\n".join([COLUMNS, *lines, ""]))
        span = WindowPeriodOptions(from_=day, to=to or f"{day}T23:59:59")
        system = str(tmp_path / "small.yaml")
        inputs = WhatIfInputs(
            source=tmp_path / "jobs.txt", system=system, period=span, lenient=lenient, dialect=dialect
        )
        return read_whatif_window(inputs)[0]

    return of


def waits_and_runs(window):
    made = actual_schedule(window)
    return [(int(s - a), int(e - s)) for a, s, e in zip(made.arrival_s, made.start_s, made.end_s, strict=True)]


@pytest.mark.parametrize(("day", "hours"), [("2026-10-25", 25), ("2027-03-28", 23), ("2026-10-24", 24)])
def test_day_of_clock_change_has_its_own_length(window_of, day, hours):
    window = window_of(day, ("12:00:00", "12:00:00", "13:00:00", "01:00:00"), to=f"{day}T23:59:59")
    assert window.to_s - window.from_s == hours * 3600 - 1
    assert f"{window.to_local_time(window.from_s):%Y-%m-%d %H:%M}" == f"{day} 00:00"
    assert f"{window.to_local_time(window.to_s):%Y-%m-%d %H:%M:%S}" == f"{day} 23:59:59"


@pytest.mark.parametrize(
    ("day", "rows", "expected"),
    [
        # Three o'clock became two: half an hour of waiting before it, and half an hour of work over it.
        ("2026-10-25",
         [("01:30:00", "02:00:00", "02:30:00", "00:30:00"), ("01:30:00", "02:50:00", "02:10:00", "00:20:00"),
          ("01:45:00", "01:45:00", "03:00:00", "02:15:00")], [(1800, 1800), (4800, 1200), (0, 8100)]),
        ("2027-03-28", [("01:50:00", "03:10:00", "03:30:00", "00:20:00")], [(1200, 1200)]),
    ],
)  # fmt: skip
def test_repeated_or_skipped_hour_keeps_waits_and_runs(window_of, day, rows, expected):
    assert waits_and_runs(window_of(day, *rows)) == expected


def test_time_in_skipped_hour_is_rejected_or_counted(window_of):
    rows = [("02:30:00", "03:10:00", "03:30:00", "00:20:00"), ("04:00:00", "04:00:00", "05:00:00", "01:00:00")]
    with pytest.raises(InvalidTrace, match="does not exist in Europe/Berlin, whose clock skipped it"):
        window_of("2027-03-28", *rows)
    window = window_of("2027-03-28", *rows, lenient=True)
    assert len(window.jobs) == 1
    assert sum(count for why, count in window.left_out.items() if "whose clock skipped it" in why) == 1


@pytest.fixture
def site(tmp_path):
    """A folder with collected data."""
    collect_from_slurm(2, tmp_path / "site", False, answers, NOW)
    return tmp_path / "site"


def read_folder(path, from_=None):
    return read_whatif_window(WhatIfInputs(source=path, period=WindowPeriodOptions(from_=from_ or f"{at(0)}+00:00")))


def test_folder_reads_equally_in_every_zone(site, monkeypatch):
    found = []
    try:
        for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            window, digests = read_folder(site)
            times = window.from_s, window.to_s, window.to_local_time(window.from_s)
            found.append((waits_and_runs(window), times, digests))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found[0] == found[1] == found[2]


def test_folder_dates_use_site_zone(site):
    manifest, begins = site / "collected.json", []
    facts = json.loads(manifest.read_text())
    for zone in ("UTC", "Asia/Kathmandu"):
        manifest.write_text(json.dumps(facts | {"zone": zone}))
        begins.append(read_folder(site, at(0)[:10])[0].from_s)
    assert begins[0] - begins[1] == 5 * 3600 + 45 * 60


@pytest.mark.parametrize("events", [None, "", "NodeName|TimeStart|TimeEnd|State|Duration\n"])
def test_month_without_events_has_no_outages(site, events):
    (site / "events.txt").unlink()
    if events is not None:
        (site / "events.txt").write_text(events)
    window, digests = read_folder(site)
    assert (digests["outages"], int((window.role == OUTAGE).sum())) == (0, 0)
    assert window.is_judged.any()
