"""A bridge's name stays with its state directory, and with no copy of it."""

import json
import shutil

import pytest

from cpsched_bridge.store.bridge_identity import NAME, ensure_bridge_name, make_lease, read_bridge_name


def test_the_name_is_made_once_and_each_process_has_a_run_of_its_own(tmp_path):
    first, second = make_lease(tmp_path), make_lease(tmp_path)
    assert first.bridge == second.bridge == read_bridge_name(tmp_path)
    assert first.run != second.run
    assert first.where.endswith(f":{tmp_path}")
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_a_copy_of_the_state_directory_is_a_bridge_of_its_own_and_the_original_stays_who_it_was(tmp_path):
    original = tmp_path / "original"
    original.mkdir()
    name = ensure_bridge_name(original)
    shutil.copytree(original, tmp_path / "copy")
    assert read_bridge_name(tmp_path / "copy") is None
    assert ensure_bridge_name(tmp_path / "copy") != name
    assert ensure_bridge_name(original) == name


def test_a_state_directory_restored_from_a_backup_beside_the_living_one_is_a_bridge_of_its_own(tmp_path):
    living, restored = tmp_path / "state", tmp_path / "restored"
    living.mkdir()
    name = ensure_bridge_name(living)
    shutil.copytree(living, restored)
    living.rename(tmp_path / "aside")  # still open, and still in use
    restored.rename(living)
    assert ensure_bridge_name(living) != name


def test_a_disk_image_that_was_cloned_to_another_host_does_not_give_one_name_to_two(tmp_path):
    ensure_bridge_name(tmp_path)
    found = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps({**found, "made": ["elsewhere", *found["made"][1:]]}))  # the same inode
    assert read_bridge_name(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"bridge": 1}', b"[" * 2000])
def test_a_file_that_is_damaged_is_replaced(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    assert ensure_bridge_name(tmp_path) == ensure_bridge_name(tmp_path)


def test_a_disk_that_takes_no_file_gives_a_name_nevertheless(tmp_path):
    assert ensure_bridge_name(tmp_path / "not there")
