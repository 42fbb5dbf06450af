"""Findings in Markdown, to be pasted into a mail, and as tables of commas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cpsched.formatting import measured, signed, signed_range, span
from cpsched_sim.errors import SHOWN_CHARS, shown
from cpsched_sim.whatif.gains import TOLD

MOST_REASONS = 12
MOST_CLASSES = 60
MOST_ACCOUNTS = 40
MOST_OF_A_NOTE = 1000
SHARES, STRANDED = "Who got how much against shares", "Empty though somebody waited"
NOTHING = "At no hour of the window did anybody wait while something stood empty."


def short(found: Mapping[str, Any]) -> str:
    """What fits on a screen: the sentences, the verdict, and a line for each case."""
    near, lines = found["fidelity"], [f"# What if: {words(found['file'])}", ""]
    lines += [*found["sentences"], "", f"**Fidelity: {near['verdict']['grade']}.** {fidelity_in_words(near)}", ""]
    if found["cases"]:
        lines += _table(
            ("case", "mean wait", "against the twin", "95 % interval", "told?"),
            ([case["name"], span(row["case"]), signed(row["difference"], "s"), signed_range(row["interval"], "s"),
              row["verdict"]] for case in found["cases"] for row in case["figures"][:1]),
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def letter(found: Mapping[str, Any]) -> str:
    """All findings but the lines of pictures."""
    lines = [short(found)]
    near = found["fidelity"]
    lines += ["## How near the twin comes", ""]
    lines += _table(
        ("figure", "real", "twin", "off by"),
        ([row["name"], measured(row["real"], row["unit"]), measured(row["twin"], row["unit"]),
          signed(row["off"], row["unit"])] for row in near["figures"]),
    )  # fmt: skip
    lines += _table(
        ("kind", "class", "jobs", "real mean wait", "twin's", "difference", "95 % interval", "within 5 min"),
        ([row["kind"], row["name"], f"{row['jobs']:,}", span(row["real_mean_wait_s"]),
          span(row["twin_mean_wait_s"]), signed(row["difference_s"], "s"),
          signed_range(row["difference_interval_s"], "s"),
          f"{row['within_tolerance']:.0%}"] for row in near["classes"][:MOST_CLASSES]),
    )  # fmt: skip
    for case in found["cases"]:
        lines += [f"## {words(case['name'])}", ""]
        lines += _table(
            ("figure", "twin", "case", "difference", "95 % interval", "told?"),
            ([row["name"], measured(row["twin"], row["unit"]), measured(row["case"], row["unit"]),
              signed(row["difference"], row["unit"]), signed_range(row["interval"], row["unit"]), row["verdict"]]
             for row in case["figures"]),
        )  # fmt: skip
        lines += ["By class, mean waits:", ""]
        lines += _table(
            ("kind", "class", "jobs", "twin", "case", "difference", "95 % interval", "told?"),
            ([row["kind"], row["name"], f"{row['jobs']:,}", span(row["twin_mean_wait_s"]),
              span(row["case_mean_wait_s"]), signed(row["difference"], "s"), signed_range(row["interval"], "s"),
              row["verdict"]]
             for row in case["classes"][:MOST_CLASSES]),
        )  # fmt: skip
        if case["losers"]:
            lines += ["Who would have lost most, in all:", ""]
            lines += _table(
                ("user", "jobs", "mean wait, twin", "mean wait, case", "longer in all"),
                ([row["user"], f"{row['jobs']:,}", span(row["twin_mean_wait_s"]), span(row["case_mean_wait_s"]),
                  span(row["more_wait_s"])] for row in case["losers"]),
            )  # fmt: skip
    if found["shares"]["twin"] is not None:
        lines += [f"## {SHARES}", ""]
        lines += _table(share_heads(found), share_rows(found))
    lines += [f"## {STRANDED}", ""]
    rows = list(stranded_rows(found))
    lines += _table(stranded_heads(found), rows) if rows else [NOTHING, ""]
    lines += ["## What was replayed, and what was not", ""]
    lines += _table(("what", "of it"), facts_of(found))
    if found["left_out"]:
        lines += _table(("jobs", "not replayed because"), (
            [f"{count:,}", why] for why, count in list(found["left_out"].items())[:MOST_REASONS]))  # fmt: skip
    lines += [f"- {words(note, MOST_OF_A_NOTE)}" for note in found["notes"]]
    return "\n".join(lines) + "\n"


def fidelity_in_words(near: Mapping[str, Any]) -> str:
    """Why the twin has its grade, and how many of its starts are right."""
    return (
        f"{cap(near['verdict']['why'])}. {near['within_tolerance']:.0%} of its starts are within "
        f"{span(near['tolerance_s'])} of the real ones; in the mean hour its use of the machine is off by "
        f"{near['use_off']:.1%}."
    )


def facts_of(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """Settings, version and digests."""
    window, system = found["window"], found["system"]
    yield ["window", f"{window['from']} to {window['to']}"]
    yield ["times", window["zone"]]
    yield from (["jobs, " + name, f"{count:,}"] for name, count in window["jobs"].items() if count)
    guessed = f", guessed by {system['guessed_by']}" if system["guessed_by"] else ""
    yield ["system", f"{system['name']}{guessed}"]
    yield ["twin", found["twin"]]
    yield from ([f"pace of {case['name']}", case["pace"]] for case in found["cases"])
    react = "users who react, too" if found["sessions"] else "open replays alone"
    blocks = f"{found['blocks']['count']:,} {found['blocks']['kind']} drawn anew"
    yield ["intervals", f"95 %: {blocks}; {found['seeds']} seeds; {react}"]
    yield ["begun later than really, for want of room", f"{found['late_begins']:,}"]
    yield ["cpsched", f"{found['version']}, {found['date']}"]
    yield from ([name, str(value) or "-"] for name, value in found.get("digests", {}).items())


def share_heads(found: Mapping[str, Any]) -> Sequence[str]:
    """The heads of the table of shares."""
    return "account", "share", "due, by the twin", "really got", "twin", *(case["name"] for case in found["cases"])


def share_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """By account, its share, and the part of all use that it was due and that it got; last, how far that is apart."""
    twin = found["shares"]["twin"]
    made = [found["shares"]["real"], twin, *(case["shares"] for case in found["cases"])]
    got = [{row["account"]: row["used"] for row in each["accounts"]} if each else {} for each in made]
    by_use = sorted(twin["accounts"], key=lambda row: -max(row["used"], row["share"]))
    for row in by_use[:MOST_ACCOUNTS]:
        parts = [f"{each.get(row['account'], 0.0):.1%}" for each in got]
        yield [row["account"] or "none", f"{row['share']:.1%}", f"{row['due']:.1%}", *parts]
    yield ["use that went elsewhere than due", "", "", *(f"{each['distance']:.1%}" if each else "-" for each in made)]


def stranded_heads(found: Mapping[str, Any]) -> Sequence[str]:
    """The heads of the table of what stood empty."""
    return "what", "why", "twin", *(case["name"] for case in found["cases"])


def stranded_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """By cause, what part of the machine stood empty while somebody waited; causes that never were are left out."""
    every = [found["stranded"], *(case["stranded"] for case in found["cases"])]
    for rows in zip(*every, strict=True):
        if any(row["part"] > 0 for row in rows):
            yield [rows[0]["what"], rows[0]["cause"], *(f"{row['part']:.1%}" for row in rows)]


def class_rows(found: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """gains.csv: every figure and every class of every case."""
    yield (
        "case",
        "kind",
        "name",
        "unit",
        "jobs",
        "twin",
        "case_value",
        "difference",
        "low",
        "high",
        "twin_error",
        "verdict",
    )
    for case in found["cases"]:
        for row in case["figures"]:
            low, high = row["interval"] or ("", "")
            yield (case["name"], "all", row["name"], row["unit"], case["jobs"], row["twin"], row["case"],
                   row["difference"], low, high, row["twin_error"], row["verdict"])  # fmt: skip
        for row in case["classes"]:
            low, high = row["interval"] or ("", "")
            yield (case["name"], row["kind"], row["name"], "s", row["jobs"], row["twin_mean_wait_s"],
                   row["case_mean_wait_s"], row["difference"], low, high, row["twin_error"],
                   row["verdict"])  # fmt: skip


def fidelity_rows(found: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """fidelity.csv: the twin against the real starts, by class."""
    yield "kind", "name", "jobs", "real_mean_wait_s", "twin_mean_wait_s", "difference_s", "low", "high", "within_5_min"
    for row in found["fidelity"]["classes"]:
        low, high = row["difference_interval_s"] or ("", "")
        yield (row["kind"], row["name"], row["jobs"], row["real_mean_wait_s"], row["twin_mean_wait_s"],
               row["difference_s"], low, high, row["within_tolerance"])  # fmt: skip


def loser_rows(found: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """losers.csv: the users who would have lost most."""
    yield "case", "user", "jobs", "twin_mean_wait_s", "case_mean_wait_s", "more_wait_s"
    for case in found["cases"]:
        for row in case["losers"]:
            yield case["name"], *row.values()


# ------------------------------------------------------------------------------------------ spelling


def words(text: object, most: int = SHOWN_CHARS) -> str:
    """A name from a file, or a note, which cannot be markup here; at most so many characters of it."""
    return shown(text, most).replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")").replace("[", "(")


def cap(text: str) -> str:
    """A sentence begins with a capital."""
    return text[:1].upper() + text[1:]


def is_told(row: Mapping[str, Any]) -> bool:
    """Whether a difference is one."""
    return bool(row["verdict"] == TOLD)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(words(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *body, ""]
