"""The site builds without warnings, which covers all links between pages. The generated pages are complete."""

import re
import subprocess
import sys

import pytest

from cpsched_bridge.program.command_help import EXAMPLES
from docs.scripts import api, commands, json_keys, man, metrics, policies, settings
from tests.docs.test_code_blocks import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def test_every_site_link_leads_to_page_and_anchor(site):
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    anchors = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in pages.items()}
    broken = []
    for name, text in pages.items():
        for link in re.findall(r'<a[^>]* href="(?!https?:|mailto:)([^"]+)"', text) if name != "404.html" else ():
            path, _, anchor = link.partition("#")
            target = (site / name).parent / path if path else site / name
            key = target.resolve().relative_to(site.resolve()).as_posix()
            if not target.exists() or (anchor and key in pages and anchor not in anchors[key] | {"__consent"}):
                broken.append((name, link))
    assert broken == []


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        (settings.page, ["| `lease.duration_s` | number, above 0 | s | `120.0` |", "`options.transport`"]),
        (metrics.page, ["| `cpsched_commands_total` | counter |", "`cpsched_held_jobs`"]),
        (commands.page, ["### `cpsched journal show`", "| `--last INTEGER` |", "Example: `cpsched why 1234`"]),
        (json_keys.page, ["| `results[].summary.bsld` |", "| `NAME.mean_absolute_error_min` |", "| `likely_from_s` |"]),
        (policies.page, ["| `overdue_h` | number | h | `168.0` |", "`strict` (fcfs, ljf, sjf)"]),
        (api.page, ["::: cpsched.model.Job\n", "::: cpsched_sim."]),
    ],
)
def test_generated_page_has_its_contents(page, texts):
    text = page()
    assert [each for each in texts if each not in text] == []


def test_manual_page_shows_command_options():
    pages = dict(man.pages())
    assert len(pages) == 1 + len(EXAMPLES)
    assert ".B \\-\\-json\n" in pages["cpsched-status.1"]
    assert "cpsched status \\-\\-json" in pages["cpsched-status.1"]
    assert "cpsched\\-journal\\-show" in pages["cpsched.1"]
