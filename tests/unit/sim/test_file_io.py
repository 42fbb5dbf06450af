import errno
import os
from pathlib import Path

import pytest

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.file_io import require_writable_folder, write_atomically


def test_folder_check_leaves_nothing(tmp_path):
    require_writable_folder(tmp_path / "deep" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_rejects_folder_that_is_file_or_below_one(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"must be a folder for results, but is a file|cannot be written"):
            require_writable_folder(folder)


def test_rejects_unwritable_folder():
    with pytest.raises(InputError, match="/proc/results: cannot be written to: "):
        require_writable_folder(Path("/proc/results"))


def test_full_disk_leaves_no_partial_file(tmp_path, monkeypatch):
    def full(self, content):
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "old").write_bytes(b"old")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="old: cannot be written: No space left on device"):
        write_atomically(tmp_path / "old", b"new content")
    with pytest.raises(InputError, match="No space left on device"):
        require_writable_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain ä", "plain ä"),
        ("a\nb\x1b[31m\u202e\x00", "a\\nb\\x1b[31m\\u202e\\x00"),
        ("\ud800", "\\ud800"),
        ("x" * 100, "x" * 80 + "... (100 characters)"),
        pytest.param(10**5000, "a number with thousands of digits", id="large"),
    ],
)
def test_quotes_value_in_one_short_line(value, text):
    assert quote_value(value) == text
