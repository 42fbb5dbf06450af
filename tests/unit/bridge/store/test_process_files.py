import errno
import os

import pytest

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store import process_files
from cpsched_bridge.store.process_files import InstanceLock, PauseFile


def test_a_second_bridge_is_refused_and_told_who_runs(tmp_path):
    first = InstanceLock(tmp_path / "lock")
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        InstanceLock(tmp_path / "lock")
    first.release()
    InstanceLock(tmp_path / "lock").release()


def test_a_pause_outlives_the_bridge_and_keeps_its_reason(tmp_path):
    PauseFile(tmp_path / "paused").pause("maintenance")
    assert PauseFile(tmp_path / "paused").read_reason() == "maintenance"
    assert PauseFile(tmp_path / "paused").resume()
    assert PauseFile(tmp_path / "paused").read_reason() is None
    assert not PauseFile(tmp_path / "paused").resume()


@pytest.mark.parametrize(("code", "pauses"), [("ENOSPC", True), ("EDQUOT", True), ("EFBIG", True), ("EROFS", False)])
def test_a_disk_without_room_takes_a_pause_without_its_reason_and_any_other_error_is_told(
    tmp_path, monkeypatch, code, pauses
):
    def refuse(*_, **__):
        raise OSError(getattr(errno, code), "refused")

    monkeypatch.setattr(process_files, "open", refuse, raising=False)
    if pauses:
        PauseFile(tmp_path / "paused").pause("maintenance")
        assert PauseFile(tmp_path / "paused").read_reason() == "paused"
    else:
        with pytest.raises(OSError, match="refused"):
            PauseFile(tmp_path / "paused").pause("maintenance")


def test_a_pause_file_made_by_hand_pauses(tmp_path):
    (tmp_path / "paused").touch()
    assert PauseFile(tmp_path / "paused").read_reason() == "paused"
