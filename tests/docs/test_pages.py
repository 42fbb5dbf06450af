"""Pages stay within their word limits, and refer only to things that exist."""

import json
import re
import subprocess

import pytest
import yaml

import cpsched
from cpsched.errors import CpschedError
from cpsched.policy_spec import setting_names
from cpsched.registry import DISPATCHERS, PREDICTORS
from cpsched_bridge.adapters import mock, pbs, slurm
from cpsched_bridge.adapters.pbs.pbs_objects import BOOST_RESOURCE
from cpsched_bridge.adapters.pbs.translation.pbs_observation import LEASE_RESOURCE
from cpsched_bridge.telemetry.metric_families import METRICS
from docs.scripts import settings
from docs.scripts.command_tree import commands
from tests.builders import a_cluster, a_job, a_snapshot
from tests.docs.test_code_blocks import PAGES, ROOT

ALL = 40_283
BUDGETS = {
    "For administrators": 7_850,
    "For cluster users": 500,
    "For researchers": 8_000,
    "For developers": 7_750,
    "Evidence": 6_150,
}
"""Words of all pages of a section."""
OF_A_PAGE = {"README.md": 700, "docs/index.md": 700}
OF_A_USER_PAGE = 900
USERS = ("For administrators", "For cluster users")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def sections():
    """Section of the navigation -> its pages that are committed, as paths from the root."""
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].replace("tutorial.md", "tutorial.ipynb")
    parts = {name: value for part in yaml.safe_load(text) for name, value in part.items()}
    pages = {name: [value] if isinstance(value, str) else value for name, value in parts.items()}
    return {name: [f"docs/{page}" for page in each if (ROOT / "docs" / page).exists()] for name, each in pages.items()}


def words(path, tables=True):
    """The words that a page has for its reader; code blocks and the bars of tables are not counted."""
    text = (ROOT / path).read_text()
    if path.endswith(".ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] != "code")
    text = BLOCK.sub("", text)
    text = text if tables else re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    return sum(any(map(str.isalnum, word)) for word in text.split())


@pytest.mark.parametrize("section", BUDGETS)
def test_section_is_within_its_budget(section):
    counts = {page: words(page) for page in sections()[section]}
    assert sum(counts.values()) <= BUDGETS[section], counts


def test_page_prose_is_within_its_budget():
    limits = {page: OF_A_USER_PAGE for section in USERS for page in sections()[section]} | OF_A_PAGE
    counts = {page: words(page, tables=False) for page in limits}
    assert {page: count for page, count in counts.items() if count > limits[page]} == {}


def test_all_pages_are_within_total_budget():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sum(len((ROOT / page).read_text().split()) for page in listed.splitlines()) <= ALL


def test_every_committed_page_is_in_navigation():
    committed = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert committed == {page for pages in sections().values() for page in pages if page.endswith(".md")}


def spans(page):
    """Code in the text of a page."""
    return CODE.findall(BLOCK.sub("", page.read_text()))


def calls(page):
    """Every call of `cpsched` on a page, as words: in code of the text, and line by line in blocks of bash."""
    blocks = [text.replace("\\\n", " ") for _, language, text in BLOCK.findall(page.read_text()) if language == "bash"]
    lines = [*spans(page), *(line.strip() for block in blocks for line in block.splitlines())]
    return [re.split(r"\s*(?:[|;&>#]|$)", line)[0].split()[1:] for line in lines if re.match(r"cpsched( |$)", line)]


OPTIONS = {
    each.name: {name for term, _ in each.options for name in re.findall(r"-[\w-]+", term)} for each in commands()
}
GROUPS = {name.split()[0] for name in OPTIONS if name.split()[0] not in OPTIONS}


def unknown(call):
    """What of a call does not exist: the command, or options of it."""
    if not call or call in [[name] for name in GROUPS] or call[0] in ("-h", "--help", "-V", "--version", "COMMAND"):
        return []
    name = next((name for name in (" ".join(call[:2]), call[0]) if name in OPTIONS), None)
    if name is None:
        return [call[0]]
    return [
        word for word in call if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in OPTIONS[name] | {"-h"}
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    assert [call for call in calls(page) if unknown(call)] == []


def test_detects_unknown_command_or_option():
    assert unknown(["statuss"])
    assert unknown(["status", "--jsn"])
    assert not unknown(["accuracy", "start-times", "jobs.swf", "--max-jobs", "10"])


KNOWN_SETTINGS = {
    *settings.names(),
    *(name for adapter in (slurm, pbs, mock) for name in settings.names(adapter.Options, "options.")),
}
SECTIONS = {name.partition(".")[0] for name in KNOWN_SETTINGS if "." in name}
FILES = ("md", "py", "yaml", "yml", "json", "csv", "sqlite", "swf", "lua", "mk", "service", "timer")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_exist(page):
    dotted = [name for span in spans(page) for name in re.findall(r"^([a-z_]+(?:\.[a-z_]+)+)(?:[:= ]|$)", span)]
    named = [name for name in dotted if name.partition(".")[0] in SECTIONS and name.rpartition(".")[2] not in FILES]
    open_ended = ("policy.dispatcher_settings.", "policy.predictor_settings.")
    missing = [name for name in named if name not in KNOWN_SETTINGS and not name.startswith(open_ended)]
    assert [name for name in missing if not is_module(name)] == []


def is_module(name):
    path = ROOT / "bridge" / "cpsched_bridge" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_metrics_exist(page):
    found = set(re.findall(r"\bcpsched_[a-z0-9_]*[a-z0-9]\b", page.read_text()))
    named = {re.sub("_(total|bucket|sum|count)$", "", name) for name in found}
    others = {"cpsched_sim", "cpsched_bridge", LEASE_RESOURCE, BOOST_RESOURCE}
    assert named - {row.name for row in METRICS} - others == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "evidence"], ids=lambda page: page.name)
def test_repository_files_exist(page):
    """Evidence also cites files of earlier commits."""
    named = {
        span
        for span in spans(page)
        if re.match(r"(cpsched|sim|bridge|docs|deploy|tests|studies|tools)/[\w./-]*$", span) and "..." not in span
    }
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()] == []


def test_every_picture_is_shown():
    shown = {name for page in PAGES for name in re.findall(r"pictures/([\w-]+\.\w+)", page.read_text())}
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == shown


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_of_pages_outside_site_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    generated = {"docs/reference-settings.md"}
    assert [link for link in links if not (page.parent / link).exists() and link not in generated] == []


def refused(name, value):
    """Why each dispatcher and predictor with this parameter refuses the value; None if one accepts it."""
    why = None
    for registration in [*DISPATCHERS.builtins(), *PREDICTORS.builtins()]:
        if name in setting_names(registration):
            try:
                registration.build({name: value}, lambda setting, path: {"a queue": 60.0})
            except CpschedError as error:
                why = str(error)
            else:
                return None
    return why


def test_no_page_recommends_rejected_value():
    advised = {pair for page in PAGES for span in spans(page) for pair in re.findall(r"^([a-z_]+)=([^\s=]+)$", span)}
    assert {
        pair: why for pair in advised if not pair[1].isupper() and "..." not in pair[1] and (why := refused(*pair))
    } == {}
    assert refused("order", "newest")


def test_plan_accepts_documented_values():
    page = (ROOT / "docs" / "extending.md").read_text()
    (orders,) = re.findall(r"^- `order` .*$", page, re.MULTILINE)
    (reservations,) = re.findall(r"^- `reservations` .*$", page, re.MULTILINE)
    numbers = [*map(int, re.findall(r"\b(\d+) \(", reservations)), *([None] if "`None`" in reservations else [])]
    snapshot = a_snapshot(a_cluster(1), [a_job(1, 3), a_job(2, 2)])
    assert numbers
    for order in (*re.findall(r'`"(\w+)"`', orders), lambda job: job.id, [2.0, 1.0]):
        assert cpsched.plan(snapshot, order=order).starts_by_job(snapshot)
    for number in numbers:
        assert cpsched.plan(snapshot, reservations=number).starts_by_job(snapshot)
