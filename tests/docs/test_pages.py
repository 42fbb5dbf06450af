"""The generated parts of the site are what the code says today."""

import re
import tomllib

import numpy as np
import pytest

import cpsched
from cpsched.catalogue import DISPATCHERS, PREDICTORS
from cpsched.dispatchers.cp.kit import ConstraintDispatcher
from cpsched.dispatchers.cp.recipe import WORDS
from cpsched.errors import CpschedError
from cpsched.policy_spec import setting_names
from cpsched_bridge.settings import PolicySettings
from docs.scripts import family, floor, pages, plans, studies
from tests.builders import a_cluster, a_job, a_snapshot
from tests.docs.test_code_blocks import PAGES, ROOT

WRITTEN = [page for page in PAGES if page.parent.name != "studies"]
MOST_WORDS = 2000


def test_generated_parts_and_pictures_are_up_to_date():
    assert [str(path.relative_to(ROOT)) for path, _ in pages.outdated()] == [], "make docs-pages brings them up to date"


def test_every_part_stands_on_a_page():
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert set(re.findall(r"<!-- begin generated: ([\w +-]+) -->", text)) == set(pages.PARTS)


def test_every_job_of_each_worked_example_is_answered():
    queued = {line.name for line in plans.LINES if line.started_min is None}
    for name in plans.SHOWN:
        assert set(plans.decided(name)) == queued


def test_the_family_page_knows_the_code_of_every_word():
    assert family.used() <= set(family.CODE)
    own = {listing.name for listing in DISPATCHERS.own() if listing.factory is ConstraintDispatcher}
    assert set(family.ORDER) == own


def test_the_drawing_never_shows_two_jobs_on_one_processor():
    for name in plans.SHOWN:
        drawn = plans.bars(name)
        for i, bar in enumerate(drawn):
            for other in drawn[:i]:
                apart = bar.begin >= other.end or other.begin >= bar.end
                assert apart or not set(bar.lanes) & set(other.lanes), (name, bar, other)


def test_what_contributors_are_told_to_run_is_installed_with_the_rest():
    named = set(re.findall(r"^\.venv/bin/([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {re.split(r"[<>=\[]", words)[0] for words in extras["dev"]}
    assert named - {"python"} <= installed
    assert "pre-commit" in named


def test_the_overview_shows_what_decides_by_default():
    drawn = (ROOT / "docs" / "pictures" / "demo.svg").read_text().replace("&#160;", " ")
    default = PolicySettings().dispatcher
    assert {f">{default}<", ">Slurm&#x27;s twin<"} <= set(re.findall(r">[^<]+<", drawn)), "make picture draws it again"
    assert f"[`{default}`]({default}.md)" in (ROOT / "docs" / "index.md").read_text()


def test_the_architecture_page_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`((?:cpsched|sim|bridge|docs)/[\w./-]*)`", page)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()] == []


def words_to_read(page):
    """How many words a page has that people wrote for readers: without code blocks, and what comes out of the code."""
    text = pages.PART.sub("", page.read_text())
    return len(re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE).split())


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_read_in_ten_minutes(page):
    assert words_to_read(page) <= MOST_WORDS, "measurements go to docs/studies, another subject to a page of its own"


def test_a_study_says_what_was_asked_how_when_and_what_came_of_it():
    written = {page.stem for page in (ROOT / "docs" / "studies").glob("*.md")} - {"index"}
    assert set(studies.names()) == written, "mkdocs.yml lists each study"
    for name in written:
        assert set(studies.head(name)) == {"title", *studies.ROWS}, name


def meanings():
    """By parameter and word of the CP family: the sentence that the page gives."""
    rows = [line.strip("| ").split(" | ") for line in family.words().splitlines()[2:]]
    return {(row[0].rpartition(">")[2], row[1].strip("`")): row[2] for row in rows}


def test_each_word_of_the_family_has_a_meaning_of_its_own():
    """It was the first sentence of whatever function was named: twice the same, or that of another thing."""
    found = meanings()
    assert set(found) == set(family.CODE)
    assert all(found[column, word] == meant for column, words in WORDS.items() for word, meant in words.items())
    assert len(set(found.values())) == len(found)
    assert [words for words in found.values() if len(words) < 15 or words.startswith(("See ", "(no"))] == []


ADVISED = re.compile(r"`([a-z_]+)=([^`\s=]+)`")
"""A setting with a value, as pages name it."""


def refused(name, value):
    """Why every dispatcher and predictor that has the setting refuses the value; None: one of them takes it."""
    why = None
    for listing in (listing for listing in LISTINGS if name in setting_names(listing)):
        try:
            listing.build({name: value}, lambda setting, path: {"a queue": 60.0})
        except CpschedError as error:
            why = str(error)
        else:
            return None
    return why


LISTINGS = [*DISPATCHERS.own(), *PREDICTORS.own()]


def test_no_page_advises_a_value_that_is_refused():
    pages_of_all = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    said = {(name, value) for page in pages_of_all for name, value in ADVISED.findall(page.read_text())}
    placeholders = {(name, value) for name, value in said if value.isupper() or "..." in value}
    assert len([name for name, _ in said if name in {"order", "site_weight", "objective", "effort"}]) > 10
    assert {said_so: why for said_so in said - placeholders if (why := refused(*said_so))} == {}
    assert refused("reservations", "-1")
    assert refused("order", "newest")


def test_what_researchers_are_told_of_plan_is_taken_by_plan():
    """The page once named a value, None, that was refused."""
    page = (ROOT / "docs" / "researchers.md").read_text()
    (orders,) = re.findall(r"^- `order` .*$", page, re.MULTILINE)
    (reservations,) = re.findall(r"^- `reservations` .*$", page, re.MULTILINE)
    names, numbers = re.findall(r'`"(\w+)"`', orders), re.findall(r"\b(\d+) \(", reservations)
    assert (names, numbers) == (["reg", "saf"], ["0", "1"])
    assert "`None`" in reservations
    snapshot = a_snapshot(a_cluster(1), [a_job(1, 3), a_job(2, 2)])
    for order in (*names, lambda job: job.id, np.array([2.0, 1.0])):
        assert cpsched.plan(snapshot, order=order).starts_by_job(snapshot)
    for kept in (*map(int, numbers), 2, None):
        assert cpsched.plan(snapshot, reservations=kept).starts_by_job(snapshot)


def test_the_drawing_of_the_compiled_floor_shows_what_kernels_decide():
    snapshot, drawn = floor.snapshot(), floor.floor()
    decision = cpsched.plan(snapshot, need="plan")
    assert [(start_s - floor.NOW_S) // floor.MINUTE for start_s in decision.plan_s] == list(drawn.start_min)
    (placement,) = decision.starts_by_job(snapshot).values()
    stage = drawn.stages[1]
    assert [node for node, _ in placement] == sorted(drawn.node_at[slice(*stage.groups[-1].places)])
    assert [(at, count) for _, at, count in stage.moves] == [(stage.groups[-1].places[0], len(placement))]


def test_groups_of_the_drawing_share_out_all_places_at_each_stage():
    drawn = floor.floor()
    assert len(drawn.stages) == 3
    for stage in drawn.stages:
        places = [place for group in stage.groups for place in range(*group.places)]
        assert sorted(places) == list(range(floor.NODES))


def test_runs_of_the_drawing_are_the_stretches_of_successive_nodes_of_a_group():
    drawn, begins = floor.floor(), set()
    assert sorted(drawn.node_at) == list(range(floor.NODES))
    for group in drawn.stages[0].groups:
        first, behind = group.places
        begins |= {first} | {at for at in range(first + 1, behind) if drawn.node_at[at] != drawn.node_at[at - 1] + 1}
        busy = {
            tuple(name for name, _, _, nodes in floor.RUNNING if node in nodes) for node in drawn.node_at[first:behind]
        }
        assert len(busy) == 1, "the nodes of a group are free alike"
    assert begins == {at for at, _ in drawn.runs}
