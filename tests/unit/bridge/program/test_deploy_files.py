"""`cpsched deploy-files`: every file is written with its text, and nothing of an administrator's is lost."""

import re
from pathlib import Path

import pytest

from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.deploy_files import FILES, write

ROOT = Path(__file__).resolve().parents[4]


def test_every_file_is_written_as_it_stands_in_the_repository(tmp_path):
    lines = list(write(tmp_path / "new" / "folder"))
    assert len(lines) == len(FILES) + 1
    for file in FILES:
        written = tmp_path / "new" / "folder" / file.name
        assert written.read_bytes() == (ROOT / file.source).read_bytes()
        assert written.stat().st_mode & 0o777 == file.mode
    readme = (tmp_path / "new" / "folder" / "README.md").read_text()
    assert all(f"`{file.name}` | {file.place}" in readme for file in FILES)


def test_what_an_administrator_changed_is_not_overwritten_and_nothing_else_is_written(tmp_path):
    (tmp_path / "bridge.yaml").write_text("mode: control\n")
    with pytest.raises(SettingsError, match=r"bridge\.yaml: exists with another content; --force"):
        list(write(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["bridge.yaml"]
    assert (tmp_path / "bridge.yaml").read_text() == "mode: control\n"


def test_force_replaces_what_differs_and_leaves_the_rest(tmp_path):
    list(write(tmp_path))
    (tmp_path / "bridge.yaml").write_text("mode: control\n")
    reports = {Path(line.split()[1]).name: line.split()[0] for line in write(tmp_path, force=True)}
    assert reports.pop("bridge.yaml") == "replaced"
    assert set(reports.values()) == {"unchanged"}
    assert "mode: shadow" in (tmp_path / "bridge.yaml").read_text()


def test_writing_again_changes_nothing(tmp_path):
    list(write(tmp_path))
    assert all(line.startswith("unchanged") for line in write(tmp_path))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SettingsError, match=r"file/ADMIN\.md: cannot be written"):
        list(write(tmp_path / "file"))
    (tmp_path / "folder" / "ADMIN.md").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"folder/ADMIN\.md: cannot be written"):
        list(write(tmp_path / "folder"))


def test_the_page_for_administrators_says_where_each_file_comes_from():
    """Names in code style that look like one of the written files are written files."""
    page = (ROOT / "docs" / "admin.md").read_text()
    names = {file.name for file in FILES}
    assert names - {"ADMIN.md"} <= set(re.findall(r"`([\w./-]+)`", page))
