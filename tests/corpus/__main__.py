"""`python -m tests.corpus record | check [AREA ...]`: see the package."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase

import yaml

from tests.corpus import facts, journals
from tests.corpus.program import Facts

FOLDER = journals.DATA / "facts"
ACCEPTED = journals.DATA / "accepted.yaml"
HEAD = """\
# Intended differences from the recorded facts, until `make corpus` records them and empties this list.
# path: a pattern of paths (*, ?). reason: why it is no bug. now: a pattern of the new value, or "gone".
# An entry that matches no difference fails the check.
"""
GONE = "gone"


@dataclass(frozen=True)
class Difference:
    """A fact that differs from the record; None: it is, or was, missing."""

    path: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        lines = [f"- {self.path} = {self.before}"] if self.before is not None else []
        return "\n".join([*lines, *([f"+ {self.path} = {self.now}"] if self.now is not None else [])])


@dataclass
class Accepted:
    """An entry of the list of intended differences."""

    path: str
    reason: str
    now: str = "*"
    count: int = 0

    def takes(self, difference: Difference) -> bool:
        """Return whether the entry covers this difference, and count it."""
        value = GONE if difference.now is None else difference.now
        fits = fnmatchcase(difference.path, self.path) and fnmatchcase(value, self.now)
        self.count += fits
        return fits


def recorded(area: str) -> Facts:
    """Return the recorded facts of an area."""
    path = FOLDER / f"{area}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(" = ", 1) for line in lines)


def collected(area: str) -> Facts:
    """Return the facts of an area from the present code."""
    began_s = time.process_time()
    found = facts.areas(recorded)[area]()
    print(f"{area}: {len(found)} facts, {time.process_time() - began_s:.1f} CPU s", file=sys.stderr)
    return {path: value.replace("\n", "\\n").strip() for path, value in sorted(found.items())}


def record(areas: list[str]) -> int:
    """Record all areas; state directories that still read and decide as recorded are kept."""
    journals.FOLDER.mkdir(exist_ok=True)
    FOLDER.mkdir(exist_ok=True)
    recipes = {recipe.name: recipe for recipe in journals.recipes(facts.named("dispatchers"))}
    for name in set(journals.names()) - set(recipes):
        (journals.FOLDER / f"{name}.tar.xz").unlink()
    for name, recipe in recipes.items():
        if name not in journals.names() or journals.replays(name)[0] != 0:
            print(f"recorded: {name}", file=sys.stderr)
            journals.record(recipe)
    for area in areas:
        lines = [f"{path} = {value}\n" for path, value in collected(area).items()]
        (FOLDER / f"{area}.txt").write_text("".join(lines))
    ACCEPTED.write_text(f"{HEAD}[]\n")
    return 0


def check(areas: list[str]) -> int:
    """Compare and report differences; return 1 for any that is not accepted, or an unused acceptance."""
    accepted = [Accepted(**entry) for entry in yaml.safe_load(ACCEPTED.read_text()) or ()]
    compared, wrong = 0, 0
    for area in areas:
        before, now = recorded(area), collected(area)
        compared += len(before.keys() | now.keys())
        for path in sorted(before.keys() | now.keys()):
            difference = Difference(path, before.get(path), now.get(path))
            if difference.before == difference.now:
                continue
            takers = [each for each in accepted if each.takes(difference)]
            if not takers:
                print(difference)
                wrong += 1
    unused = [each for each in accepted if not each.count] if len(areas) == len(facts.areas(recorded)) else []
    for each in unused:
        print(f"accepted, but there is no such difference: {each.path}, now {each.now} ({each.reason})")
    taken = sum(each.count for each in accepted)
    print(f"{compared} facts compared: {wrong} differ, {taken} accepted, {len(unused)} accepted entries without use")
    return int(bool(wrong or unused))


def main() -> int:
    """Record or check the named areas, by default all."""
    known = list(facts.areas(recorded))
    what, *areas = sys.argv[1:] or [""]
    if what not in ("record", "check") or not set(areas) <= set(known):
        print(f"usage: python -m tests.corpus record|check [AREA ...]; areas: {', '.join(known)}", file=sys.stderr)
        return 2
    return (record if what == "record" else check)(areas or known)


if __name__ == "__main__":
    sys.exit(main())
