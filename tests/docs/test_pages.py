"""The generated parts of the site are what the code says today."""

import re

import numpy as np
import pytest

import cpsched
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.model_choice import WORDS
from cpsched.errors import CpschedError
from cpsched.policy_spec import setting_names
from cpsched.registry import DISPATCHERS, PREDICTORS
from cpsched_bridge.settings import PolicySettings
from docs.scripts import family, pages, studies
from tests.builders import a_cluster, a_job, a_snapshot
from tests.docs.test_code_blocks import PAGES, ROOT

WRITTEN = [page for page in PAGES if page.parent.name != "studies"]
MOST_WORDS = 2000


def test_generated_parts_and_pictures_are_up_to_date():
    assert [str(path.relative_to(ROOT)) for path, _ in pages.outdated()] == [], "make docs-pages brings them up to date"


def test_every_part_stands_on_a_page():
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    assert set(re.findall(r"<!-- begin generated: ([\w +-]+) -->", text)) == set(pages.PARTS)


def test_the_family_page_knows_the_code_of_every_word():
    assert family.used() <= set(family.CODE)
    own = {listing.name for listing in DISPATCHERS.builtins() if listing.factory is ConstraintDispatcher}
    assert set(family.ORDER) == own


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


LISTINGS = [*DISPATCHERS.builtins(), *PREDICTORS.builtins()]


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
    page = (ROOT / "docs" / "extending.md").read_text()
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
