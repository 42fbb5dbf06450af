"""The report: one page of HTML with nothing from elsewhere, for screens light and dark, phones, and paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from cpsched.formatting import measured, signed, signed_range, span
from cpsched_sim.errors import shown
from cpsched_sim.report import weeks
from cpsched_sim.report.page import document, picture, table
from cpsched_sim.whatif.findings import QUANTILES, mean_wait
from cpsched_sim.whatif.letter import (
    MOST_OF_A_NOTE,
    NOTHING,
    SHARES,
    STRANDED,
    cap,
    facts_of,
    fidelity_in_words,
    is_told,
    share_heads,
    share_rows,
    stranded_heads,
    stranded_rows,
)

MOST_DOTS = 14


def page(found: Mapping[str, Any]) -> str:
    """The whole report."""
    title = f"What if: {shown(found['file'])}"
    parts = [f'<p class="said">{escape(sentence)}</p>' for sentence in found["sentences"]]
    parts += [*_first_picture(found), _verdict(found)]
    parts += ["<h2>How near the twin comes</h2>", *_fidelity(found)]
    parts += ["<h2>Waits, queue and use</h2>", *_over_time(found)]
    parts += [*_who_and_what(found)]
    for at, case in enumerate(found["cases"]):
        parts += [f"<h2>{escape(cap(shown(case['name'])))}</h2>", *_case(case, at)]
    parts += ["<h2>What was replayed, and what was not</h2>", *_facts(found)]
    return document(title, parts)


def _verdict(found: Mapping[str, Any]) -> str:
    near = found["fidelity"]
    grade = near["verdict"]["grade"]
    why = escape(fidelity_in_words(near))
    return f'<p class="verdict {grade}"><strong>Fidelity: {grade}.</strong> {why}</p>'


def _first_picture(found: Mapping[str, Any]) -> Iterator[str]:
    """Mean waits of all cases against the twin's, and the twin's own error."""
    rows = [(case["name"], row) for case in found["cases"] for row in [mean_wait(case)] if row["interval"] is not None]
    if not rows:
        return
    unit_s, unit = _unit([abs(each) for _, row in rows for each in (*row["interval"], row["twin_error"])])
    dots = [
        (name, row["difference"] / unit_s, row["interval"][0] / unit_s, row["interval"][1] / unit_s)
        for name, row in rows
    ]
    label = f"mean wait against the twin's, {unit} (left: shorter; band: the twin's own error)"
    yield from picture(lambda: weeks.dots(dots, label, max(row["twin_error"] for _, row in rows) / unit_s, "first"))
    yield _numbers(
        "Mean wait", ("case", "twin", "case's", "difference", "95 % interval", "told?"),
        ([name, measured(row["twin"], "s"), measured(row["case"], "s"), signed(row["difference"], "s"),
          signed_range(row["interval"], "s"), row["verdict"]] for name, row in rows), True,
    )  # fmt: skip


def _fidelity(found: Mapping[str, Any]) -> Iterator[str]:
    near = found["fidelity"]
    yield table("Figures", ("figure", "real", "twin", "off by"), (
        [row["name"], measured(row["real"], row["unit"]), measured(row["twin"], row["unit"]),
         signed(row["off"], row["unit"])]
        for row in near["figures"]))  # fmt: skip
    yield table(
        "By class, mean waits",
        ("class", "jobs", "real", "twin", "difference", "95 % interval", "within 5 min"),
        ([f"{row['kind']}: {shown(row['name'])}", f"{row['jobs']:,}", span(row["real_mean_wait_s"]),
          span(row["twin_mean_wait_s"]), signed(row["difference_s"], "s"),
          signed_range(row["difference_interval_s"], "s"),
          f"{row['within_tolerance']:.0%}"] for row in near["classes"]),
    )  # fmt: skip
    if near["use_together"] is not None:
        together = f"Real and replayed use, hour by hour, are correlated by {near['use_together']:.2f}."
        yield f'<p class="quiet">{together}</p>'


def _over_time(found: Mapping[str, Any]) -> Iterator[str]:
    names = {"as it was": found["lines"]["real"], "twin": found["lines"]["twin"]}
    names |= {case["name"]: case["lines"] for case in found["cases"]}
    spread = {name: ([max(0.0, s) for s in each["wait_quantiles_s"]], [float(q) for q in QUANTILES])
              for name, each in names.items()}  # fmt: skip
    yield from picture(lambda: weeks.lines(spread, "wait, s", "% of jobs that waited no longer", "waits", True))
    some = [at for at, part in enumerate(QUANTILES) if part in (10, 50, 80, 90, 96, 100)]
    yield _numbers(
        "Waits", ("", *(f"{QUANTILES[at]} % within" for at in some)),
        ([name, *(span(each["wait_quantiles_s"][at]) for at in some)] for name, each in names.items()),
    )  # fmt: skip
    days = _days(found)
    for key, up, factor in (("waiting", "jobs that wait", 1.0), ("used", "% of the processors in use", 100.0)):
        series = {
            name: (_spread(len(each[key]), days), [factor * value for value in each[key]])
            for name, each in names.items()
        }
        yield from picture(partial(weeks.lines, series, "day", up, key))
        yield _numbers(cap(up), ("", "mean", "most"), (
            [name, f"{factor * _mean(each[key]):.1f}", f"{factor * max(each[key], default=0.0):.1f}"]
            for name, each in names.items()))  # fmt: skip


def _who_and_what(found: Mapping[str, Any]) -> Iterator[str]:
    """Use against shares, and what stood empty though somebody waited."""
    if found["shares"]["twin"] is not None:
        yield f"<h2>{SHARES}</h2>"
        yield table("Part of all use in the window", share_heads(found), share_rows(found))
    yield f"<h2>{STRANDED}</h2>"
    rows = list(stranded_rows(found))
    if rows:
        yield table("Part of the machine, looked at once an hour", stranded_heads(found), rows)
    else:
        yield f"<p>{NOTHING}</p>"


def _case(case: Mapping[str, Any], at: int) -> Iterator[str]:
    if case["never_started"]:
        yield f"<p>{case['never_started']:,} jobs that the twin starts never start here, and count nowhere.</p>"
    yield table(
        "All judged jobs",
        ("figure", "twin", "here", "difference", "95 % interval", "users who react", "told?"),
        ([row["name"], measured(row["twin"], row["unit"]), measured(row["case"], row["unit"]),
          signed(row["difference"], row["unit"]), signed_range(row["interval"], row["unit"]),
          signed(row["half_closed"], row["unit"]), row["verdict"]] for row in case["figures"]),
    )  # fmt: skip
    drawn = [row for row in case["classes"] if row["interval"] is not None and row["kind"] != "hour of the week"]
    drawn = sorted(drawn, key=lambda row: -row["jobs"])[:MOST_DOTS]
    if drawn:
        unit_s, unit = _unit([abs(each) for row in drawn for each in row["interval"]])
        dots = [(f"{row['kind']}: {shown(row['name'], 30)}", row["difference"] / unit_s,
                 *(each / unit_s for each in row["interval"])) for row in drawn]  # fmt: skip
        label = f"mean wait against the twin's, {unit} (the {len(drawn)} classes with most jobs)"
        yield from picture(lambda: weeks.dots(dots, label, 0.0, f"classes{at}"))
    yield table(
        "By class, mean waits",
        ("class", "jobs", "twin", "here", "difference", "95 % interval", "told?"),
        ([f"{row['kind']}: {shown(row['name'])}", f"{row['jobs']:,}", span(row["twin_mean_wait_s"]),
          span(row["case_mean_wait_s"]), signed(row["difference"], "s"), signed_range(row["interval"], "s"),
          "yes" if is_told(row) else row["verdict"]] for row in case["classes"]),
    )  # fmt: skip
    if case["losers"]:
        yield table("Who would have lost most, in all", ("user", "jobs", "twin", "here", "longer in all"), (
            [shown(row["user"]), f"{row['jobs']:,}", span(row["twin_mean_wait_s"]), span(row["case_mean_wait_s"]),
             span(row["more_wait_s"])] for row in case["losers"]))  # fmt: skip


def _facts(found: Mapping[str, Any]) -> Iterator[str]:
    yield table("Settings", ("what", "of it"), facts_of(found))
    yield table("Cases", ("case", "dispatcher / predictor", "settings", "changes", "seeds"), (
        [shown(case["name"]), f"{case['dispatcher']} / {case['predictor']}", _pairs(case["settings"]),
         _pairs(case["changes"]), str(case["seeds"])] for case in found["cases"]))  # fmt: skip
    if found["left_out"]:
        yield table(
            "Not replayed", ("reason", "jobs"), ([why, f"{count:,}"] for why, count in found["left_out"].items())
        )
    yield "<ul>" + "".join(f"<li>{escape(shown(note, MOST_OF_A_NOTE))}</li>" for note in found["notes"]) + "</ul>"


# ------------------------------------------------------------------------------------------ parts


def _numbers(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], is_open: bool = False) -> str:
    """The numbers of a picture, for those who do not see it."""
    how = " open" if is_open else ""
    return f"<details{how}><summary>The numbers of this picture</summary>{table(title, heads, rows)}</details>"


def _pairs(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{shown(name)}={shown(value)}" for name, value in settings.items()) or "-"


def _unit(values: Sequence[float]) -> tuple[float, str]:
    most = max(values, default=0.0)
    return (1.0, "s") if most < 300 else (60.0, "min") if most < 3 * 3600 else (3600.0, "h")


def _days(found: Mapping[str, Any]) -> float:
    from datetime import datetime

    window = found["window"]
    lasts = datetime.fromisoformat(window["to"]) - datetime.fromisoformat(window["from"])
    return lasts.total_seconds() / 86_400


def _spread(count: int, days: float) -> list[float]:
    return [days * (at + 0.5) / max(1, count) for at in range(count)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
