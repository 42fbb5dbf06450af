"""The heartbeat proves the cycles of a bridge."""

import os
import time

import pytest

from cpsched_bridge.store import heartbeat
from cpsched_bridge.store.corruption_checks import compute_row_checksum
from cpsched_bridge.store.heartbeat import Heartbeat, read_heartbeat_file_age_s, touch_heartbeat
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster


@pytest.fixture(autouse=True)
def booted(monkeypatch):
    """A host with a known boot time; not all containers have one."""
    monkeypatch.setattr(heartbeat, "read_boot_id", lambda: "this-boot")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "heartbeat"


def test_age_is_time_since_last_touch(path):
    assert read_heartbeat_file_age_s(path) is None
    touch_heartbeat(path)
    assert 0 <= read_heartbeat_file_age_s(path) < 60
    os.utime(path, (1000, 1000))
    assert read_heartbeat_file_age_s(path) == pytest.approx(time.time() - 1000, abs=60)
    touch_heartbeat(path)
    assert 0 <= read_heartbeat_file_age_s(path) < 60


def test_setting_wall_clock_does_not_change_age(path, monkeypatch):
    now_s = time.time()
    touch_heartbeat(path)
    monkeypatch.setattr(heartbeat.time, "time", lambda: now_s - 86_400)
    assert 0 <= read_heartbeat_file_age_s(path) < 60


def test_after_reboot_file_time_counts(path, monkeypatch):
    now_s = time.time()
    touch_heartbeat(path)
    monkeypatch.setattr(heartbeat, "read_boot_id", lambda: "another-boot")
    monkeypatch.setattr(heartbeat.time, "time", lambda: now_s - 3600)
    assert -3700 < read_heartbeat_file_age_s(path) < -3500, "in the future: reported, not hidden"


def test_ignores_content_if_file_was_touched_by_others(path):
    later = time.time() + 3600
    touch_heartbeat(path)
    os.utime(path, (later, later))
    assert -3600 <= read_heartbeat_file_age_s(path) < -3500


@pytest.mark.parametrize(("apart_s", "counts"), [(1.999, True), (2.0, False), (-2.0, False)])
def test_content_2_seconds_from_file_time_is_ignored(path, apart_s, counts):
    touch_heartbeat(path)
    words = f"this-boot {path.read_text().split()[1]} 1000.0"
    path.write_text(f"{words} {compute_row_checksum(words.split())}\n")
    os.utime(path, (1000 + apart_s, 1000 + apart_s))
    assert (read_heartbeat_file_age_s(path) < 60) is counts


@pytest.mark.parametrize("words", [b"", b"\xff", b"a b c", b"a b", b"x" * 10_000])
def test_invalid_content_falls_back_to_file_time(path, words):
    path.write_bytes(words)
    os.utime(path, (1000, 1000))
    assert read_heartbeat_file_age_s(path) == pytest.approx(time.time() - 1000, abs=60)


def test_touch_works_on_full_disk(path, monkeypatch):
    path.touch()
    os.utime(path, (1000, 1000))
    monkeypatch.setattr(heartbeat.os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    touch_heartbeat(path)
    assert 0 <= read_heartbeat_file_age_s(path) < 60


def test_reports_missing_heartbeat_after_grace_until_next_beat(tmp_path):
    heart = Heartbeat(tmp_path / "folder" / "heartbeat", grace_s=60)
    for now_s, trouble in ((1000, False), (1059, False), (1060, True), (1100, True)):
        with pytest.raises(FileNotFoundError):
            heart.beat(now_s)
        assert bool(heart.missing_beat_reason(now_s)) is trouble
    (tmp_path / "folder").mkdir()
    heart.beat(1110)
    assert heart.missing_beat_reason(1110) is None
    assert heart.missing_beat_reason(2000) is None


def test_unwritable_heartbeat_pauses_bridge_until_writable(tmp_path):
    """The dead-man timer would release its jobs repeatedly while the bridge holds them again."""
    folder = tmp_path / "beats"
    cluster = FakeCluster.of(a_job(1, per_unit=99))
    bridge = a_bridge(tmp_path, cluster, heartbeat=folder / "heartbeat")
    found = []
    for _ in range(4):
        report = bridge.cycle()
        found.append((report.role.mode, report.result))
        bridge.pace.at_s += 30
    assert found == [("control", "storage_error")] * 2 + [("paused", "storage_error")] * 2
    assert cluster.jobs[1].hold.value == "none"
    told = [e.detail for e in bridge.journal.list_events() if e.kind == "mode"]
    assert told[-1].startswith(f"paused the heartbeat {folder}/heartbeat cannot be written: No such file")
    assert bridge.pause.read_reason() is None, "no resume is needed"
    folder.mkdir()
    assert [bridge.cycle().role.mode for _ in range(2)] == ["paused", "control"]
