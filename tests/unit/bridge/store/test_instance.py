import os

import pytest

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store.instance import InstanceLock, PauseFile


def test_a_second_bridge_is_refused_and_told_who_runs(tmp_path):
    first = InstanceLock(tmp_path / "lock")
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        InstanceLock(tmp_path / "lock")
    first.release()
    InstanceLock(tmp_path / "lock").release()


def test_a_pause_outlives_the_bridge_and_keeps_its_reason(tmp_path):
    PauseFile(tmp_path / "paused").pause("maintenance")
    assert PauseFile(tmp_path / "paused").reason() == "maintenance"
    assert PauseFile(tmp_path / "paused").resume()
    assert PauseFile(tmp_path / "paused").reason() is None
    assert not PauseFile(tmp_path / "paused").resume()


def test_a_pause_file_made_by_hand_pauses(tmp_path):
    (tmp_path / "paused").touch()
    assert PauseFile(tmp_path / "paused").reason() == "paused"
