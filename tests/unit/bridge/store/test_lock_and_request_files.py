import errno
import os

import pytest

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store import lock_and_request_files
from cpsched_bridge.store.lock_and_request_files import InstanceLock, PauseFile


def test_second_bridge_is_rejected_with_running_process(tmp_path):
    first = InstanceLock(tmp_path / "lock")
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        InstanceLock(tmp_path / "lock")
    first.release()
    InstanceLock(tmp_path / "lock").release()


def test_pause_survives_bridge_and_keeps_reason(tmp_path):
    PauseFile(tmp_path).pause("maintenance")
    assert PauseFile(tmp_path).read_reason() == "maintenance"
    assert PauseFile(tmp_path).resume()
    assert PauseFile(tmp_path).read_reason() is None
    assert not PauseFile(tmp_path).resume()


@pytest.mark.parametrize(("code", "pauses"), [("ENOSPC", True), ("EDQUOT", True), ("EFBIG", True), ("EROFS", False)])
def test_full_disk_allows_pause_without_reason(tmp_path, monkeypatch, code, pauses):
    def refuse(*_, **__):
        raise OSError(getattr(errno, code), "refused")

    monkeypatch.setattr(lock_and_request_files, "open", refuse, raising=False)
    if pauses:
        PauseFile(tmp_path).pause("maintenance")
        assert PauseFile(tmp_path).read_reason() == "paused"
    else:
        with pytest.raises(OSError, match="refused"):
            PauseFile(tmp_path).pause("maintenance")
