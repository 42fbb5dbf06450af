"""Changes between two collections, and nodes that were added later."""

import json

import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.whatif.slurm_collection import CONFIG, PseudonymTable, collect_from_slurm, pseudonymize
from cpsched_sim.whatif.slurm_collection_folder import list_site_changes, read_slurm_parameters
from cpsched_sim.whatif.whatif_io import WhatIfInputs, read_whatif_window
from cpsched_sim.whatif.whatif_window import OUTAGE, WindowPeriodOptions
from tests.unit.sim.whatif.accounting import FIRST_S
from tests.unit.sim.whatif.test_slurm_collection import NODES, NOW, answers, at

HOUR = 3600


def a_folder(path, **other):
    """What is collected where some files say something else."""
    collect_from_slurm(2, path, False, answers, NOW)
    for name, (old, new) in other.items():
        file = path / f"{name}.txt"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    return path


def before(path, until_h=10, **other):
    """The same, collected earlier."""
    folder = a_folder(path, **other)
    manifest = json.loads((folder / "collected.json").read_text())
    (folder / "collected.json").write_text(json.dumps(manifest | {"until": at(until_h)}))
    return folder


def window_of(folder, earlier=None, to=""):
    span = WindowPeriodOptions(from_=at(0) + "+00:00", to=to)
    return read_whatif_window(WhatIfInputs(source=folder, period=span, earlier=earlier))[0]


ADDED_AND_REMOVED = {
    "config": ("SchedulerParameters     = bf_interval=45\n", ""),
    "partitions": ("PartitionName=main", "PartitionName=old"),
    "nodes": ("NodeName=n3 ", "NodeName=n9 "),
}


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        ({}, []),
        ({"config": ("Age       = 1000", "Age       = 500"), "partitions": ("PriorityTier=3", "PriorityTier=1"),
          "qos": ("fast|9", "fast|4"), "nodes": ("NodeName=n1 CPUTot=4 CPUEfctv=4", "NodeName=n1 CPUTot=2 CPUEfctv=2")},
         ["slurm.conf: PriorityWeightAge was 500, is 1000", "partition main: PriorityTier was 1, is 3",
          "QOS fast: Priority was 4, is 9",
          "1 node is with changed amounts; the replay uses the later amounts: n1"]),
        (ADDED_AND_REMOVED,
         ["slurm.conf: SchedulerParameters was added", "partition main was added", "partition old was removed",
          "1 node is new: unavailable until the first job ran there: n3",
          "1 node is removed and not in the replay: n9"]),
    ],
)  # fmt: skip
def test_each_change_is_named_with_both_values(tmp_path, other, changes):
    assert list_site_changes(before(tmp_path / "one", **other), a_folder(tmp_path / "two")) == changes


def test_window_notes_that_nothing_changed(tmp_path):
    notes = window_of(a_folder(tmp_path / "two"), before(tmp_path / "one")).notes
    assert any(note.startswith("no change since") for note in notes)


def test_new_node_is_unavailable_until_job_ran_there(tmp_path):
    earlier = before(tmp_path / "one", nodes=("NodeName=n1 ", "NodeName=n9 "))
    later = a_folder(tmp_path / "two")
    first_h = 12
    rows = (later / "jobs.txt").read_text().splitlines()
    moved = [
        row.replace("|n1|", "|n2|") if row[0].isdigit() and int(row.split("|")[0]) < first_h else row for row in rows
    ]
    (later / "jobs.txt").write_text("\n".join([*moved, ""]))
    ends = [end(window_of(later, each)) for each in (None, earlier)]
    assert sorted(ends[1] - ends[0]) == [first_h * HOUR]


def end(window):
    """When outages that begin with the window end, in seconds of the first day."""
    return {
        int(item.job.submit_s) + item.run_s - FIRST_S
        for item, role in zip(window.jobs, window.role.tolist(), strict=True)
        if role == OUTAGE and item.job.submit_s == window.from_s
    }


def test_change_after_window_is_marked(tmp_path):
    earlier = before(tmp_path / "one", until_h=30, partitions=("PriorityTier=3", "PriorityTier=1"))
    later = a_folder(tmp_path / "two")
    assert any("which is after the window" in note for note in window_of(later, earlier, at(20) + "+00:00").notes)
    assert not any("after the window" in note for note in window_of(later, earlier).notes)


def test_earlier_folder_must_be_earlier(tmp_path):
    one, two = a_folder(tmp_path / "one"), before(tmp_path / "two")
    with pytest.raises(InvalidValue, match="must have been collected earlier"):
        window_of(two, one)


def test_plain_file_has_no_earlier_folder(tmp_path):
    with pytest.raises(InvalidValue, match="requires a folder"):
        read_whatif_window(WhatIfInputs(source=a_folder(tmp_path / "one") / "jobs.txt", earlier=tmp_path / "one"))


@pytest.mark.parametrize(("hour", "is_told"), [(5, True), (-100, False), (47, False)])
def test_reports_slurmctld_start_within_window(tmp_path, hour, is_told):
    later = a_folder(tmp_path / "two", config=("PriorityType ", f"BOOT_TIME               = {at(hour)}\nPriorityType "))
    notes = window_of(later, to=at(30) + "+00:00").notes
    assert any("slurmctld restarted" in note for note in notes) is is_told
    assert "BOOT_TIME" not in read_slurm_parameters(later)


def test_slurmctld_start_time_is_kept_without_names():
    text = "SlurmUser = zoe(1)\nBOOT_TIME = 2026-09-21T00:00:00\n"
    assert pseudonymize(CONFIG, text, PseudonymTable("u")) == "BOOT_TIME = 2026-09-21T00:00:00\n"


def test_file_missing_in_one_folder_is_no_change(tmp_path):
    earlier, later = before(tmp_path / "one"), a_folder(tmp_path / "two")
    for name in ("config", "partitions", "qos"):
        (earlier / f"{name}.txt").unlink()
    assert list_site_changes(earlier, later) == []
    assert NODES.count("NodeName") == 3
