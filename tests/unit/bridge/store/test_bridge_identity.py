"""A bridge's name belongs to its state directory, not to a copy of it."""

import json
import shutil

import pytest

from cpsched_bridge.store.bridge_identity import IDENTITY_FILE, ensure_bridge_name, make_lease, read_bridge_name


def test_name_is_created_once_and_each_process_has_run_id(tmp_path):
    first, second = make_lease(tmp_path, 7.5), make_lease(tmp_path, 7.5)
    assert first.bridge == second.bridge == read_bridge_name(tmp_path)
    assert first.run != second.run
    assert first.where.endswith(f":{tmp_path}")
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600


def test_restored_state_directory_gets_new_name(tmp_path):
    living, restored = tmp_path / "state", tmp_path / "restored"
    living.mkdir()
    name = ensure_bridge_name(living)
    shutil.copytree(living, restored)
    living.rename(tmp_path / "aside")  # still open, and still in use
    restored.rename(living)
    assert read_bridge_name(living) is None
    assert ensure_bridge_name(living) != name


def test_cloned_disk_image_gets_new_name(tmp_path):
    ensure_bridge_name(tmp_path)
    found = json.loads((tmp_path / IDENTITY_FILE).read_text())
    (tmp_path / IDENTITY_FILE).write_text(
        json.dumps({**found, "made": ["elsewhere", *found["made"][1:]]})
    )  # the same inode
    assert read_bridge_name(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"bridge": 1}', b"[" * 2000])
def test_replaces_damaged_file(tmp_path, content):
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    assert ensure_bridge_name(tmp_path) == ensure_bridge_name(tmp_path)


def test_unwritable_disk_still_gives_name(tmp_path):
    assert ensure_bridge_name(tmp_path / "not there")
