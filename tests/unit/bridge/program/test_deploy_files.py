"""`cpsched deploy-files`: every file is written with its content, and no file of the administrator is lost."""

import re
from pathlib import Path

import pytest

from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.deploy_files import FILES, write_deployment_files

ROOT = Path(__file__).resolve().parents[4]


def test_writes_each_file_as_in_repository(tmp_path):
    lines = list(write_deployment_files(tmp_path / "new" / "folder"))
    assert len(lines) == len(FILES) + 1
    for file in FILES:
        written = tmp_path / "new" / "folder" / file.name
        if not file.name.endswith(".md"):
            assert written.read_bytes() == (ROOT / file.repository_path).read_bytes()
        assert written.stat().st_mode & 0o777 == file.mode
    readme = (tmp_path / "new" / "folder" / "README.md").read_text()
    assert all(f"`{file.name}` | {file.place}" in readme for file in FILES)


def anchors(page):
    """The anchors of a page: those that sites and viewers make of its headings, and its own."""
    named = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    made = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in named}
    return made | set(re.findall(r'<a id="(\w+)">', page))


def test_installed_pages_have_valid_links_without_clone(tmp_path):
    list(write_deployment_files(tmp_path))
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    assert {"INSTALL.md", "OPERATE.md", "SAFETY.md"} <= set(pages)
    links = 0
    for name, text in pages.items():
        assert "<!--" not in text, name
        clone = re.search(r"(?m)(^|`)make [a-z]|(^|`)(deploy|tests|docs|bridge)/|python -m (tests|docs)|\n\n\n", text)
        assert clone is None, f"{name}: {clone}"
        for page, anchor in re.findall(r"\]\((?!http)([\w.-]*)(?:#([\w-]+))?\)", text):
            links += 1
            assert (page or name) in pages, f"{name}: {page}"
            assert not anchor or anchor in anchors(pages[page or name]), f"{name}: {page}#{anchor}"
    assert links > 10


def test_keeps_changed_file_and_then_writes_nothing(tmp_path):
    (tmp_path / "bridge.yaml").write_text("mode: control\n")
    with pytest.raises(SettingsError, match=r"bridge\.yaml: exists with different content; use --force"):
        list(write_deployment_files(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["bridge.yaml"]
    assert (tmp_path / "bridge.yaml").read_text() == "mode: control\n"


def test_force_replaces_only_changed_files(tmp_path):
    list(write_deployment_files(tmp_path))
    (tmp_path / "bridge.yaml").write_text("mode: control\n")
    reports = {Path(line.split()[1]).name: line.split()[0] for line in write_deployment_files(tmp_path, force=True)}
    assert reports.pop("bridge.yaml") == "replaced"
    assert set(reports.values()) == {"unchanged"}
    assert "mode: shadow" in (tmp_path / "bridge.yaml").read_text()


def test_second_write_changes_nothing(tmp_path):
    list(write_deployment_files(tmp_path))
    assert all(line.startswith("unchanged") for line in write_deployment_files(tmp_path))


def test_names_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SettingsError, match=r"file/INSTALL\.md: cannot be written"):
        list(write_deployment_files(tmp_path / "file"))
    (tmp_path / "folder" / "INSTALL.md").mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"folder/INSTALL\.md: cannot be written"):
        list(write_deployment_files(tmp_path / "folder"))


def test_pages_name_exactly_the_deployed_files():
    pages = [(ROOT / file.repository_path).read_text() for file in FILES if file.name.endswith(".md")]
    named = {name for page in pages for name in re.findall(r"`([\w./-]+)`", page)}
    names = {file.name for file in FILES}
    assert {name for name in names if not name.endswith(".md")} <= named
    folders = ("systemd/", "prometheus/", "grafana/")
    assert {name for name in named if name.startswith(folders)} <= names


def test_alerts_link_to_runbooks_of_site(tmp_path):
    list(write_deployment_files(tmp_path / "plain"))
    list(write_deployment_files(tmp_path / "linked", runbooks="https://docs.site.example/hpc/"))
    plain, linked = ((tmp_path / name / "prometheus" / "alerts.yaml").read_text() for name in ("plain", "linked"))
    url = "https://docs.site.example/hpc/OPERATE.md#cpscheddown"
    assert url in [line.split()[-1] for line in linked.splitlines() if "runbook_url:" in line]
    assert linked.replace("https://docs.site.example/hpc/", "/usr/share/doc/cpsched/") == plain
    assert (tmp_path / "linked" / "OPERATE.md").read_bytes() == (tmp_path / "plain" / "OPERATE.md").read_bytes()


@pytest.mark.parametrize("url", ["docs.site", "ftp://a", "https://", "https://a b", "https://a/{{ x }}", "http://a\nb"])
def test_rejects_invalid_runbook_url_before_writing(tmp_path, url):
    with pytest.raises(SettingsError, match=r"(?s)^--runbooks=.*: must be an http or https URL"):
        list(write_deployment_files(tmp_path / "new", runbooks=url))
    assert not (tmp_path / "new").exists()
