"""Present the findings as a report in HTML and Markdown, and as CSV tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from cpsched.formatting import (
    format_count,
    format_difference,
    format_difference_range,
    format_duration,
    format_percent,
    format_with_unit,
)
from cpsched_sim.errors import quote_value
from cpsched_sim.report import svg_charts
from cpsched_sim.report_document import (
    ReportBlock,
    ReportFigure,
    ReportHeading,
    ReportList,
    ReportParagraph,
    ReportTable,
    render_markdown,
)
from cpsched_sim.whatif.whatif_results import QUANTILES, mean_wait_row

MAX_PLOTTED_CLASSES = 14
MAX_ACCOUNTS = 40
Found = Mapping[str, Any]
Rows = Iterator[list[str]]
_DIFF_HEADS = ("difference", "95 % interval")


def whatif_report_title(found: Found) -> str:
    """Return the title of the report."""
    return f"What if: {quote_value(found['file'])}"


def terminal_summary(found: Found) -> str:
    """Return a Markdown summary for the terminal."""
    return render_markdown(whatif_report_title(found), _summary_blocks(found))


def whatif_report_blocks(found: Found) -> Iterator[ReportBlock]:
    """Yield all blocks of the report."""
    yield from _summary_blocks(found)
    yield from _fidelity_blocks(found)
    yield from _timeline_blocks(found)
    yield from _share_blocks(found)
    yield from _stranded_blocks(found)
    for at, case in enumerate(found["cases"]):
        yield ReportHeading(_capitalize(quote_value(case["name"])))
        yield from _case_blocks(case, at)
    yield from _setup_blocks(found)


def _summary_blocks(found: Found) -> Iterator[ReportBlock]:
    """Yield the summary sentences, the cases' mean waits, and the twin's fidelity."""
    yield from (ReportParagraph(sentence, "said") for sentence in found["sentences"])
    rows = [(case["name"], mean_wait_row(case)) for case in found["cases"]]
    if rows:
        numbers = ReportTable("", ("case", "mean wait", "twin's", *_DIFF_HEADS, "significant?"), [
            [quote_value(name), format_with_unit(row["case"], "s"), format_with_unit(row["twin"], "s"), *_difference_cells(row, "s"), row["verdict"]]  # noqa: E501
            for name, row in rows])  # fmt: skip
        drawn = [(quote_value(name, 30), row) for name, row in rows if row["interval"] is not None]
        band_s = max((row["twin_error"] for _, row in drawn), default=0.0)
        label = "mean wait relative to the twin's, {} (left: shorter; band: the twin's own error)"
        yield ReportFigure(_difference_plot(drawn, label, "first", band_s), numbers, True) if drawn else numbers
    near = found["fidelity"]
    grade = near["verdict"]["grade"]
    yield ReportParagraph(
        f"{_capitalize(near['verdict']['why'])}. {format_percent(near['within_tolerance'])} of its starts are within "
        f"{format_duration(near['tolerance_s'])} of the real ones; on average, its hourly use of the machine is off by "
        f"{format_percent(near['use_off'], 1)}.",
        f"verdict {grade}", f"Fidelity: {grade}.",
    )  # fmt: skip


def _fidelity_blocks(found: Found) -> Iterator[ReportBlock]:
    near = found["fidelity"]
    yield ReportHeading("Fidelity of the twin")
    yield ReportTable("Figures", ("figure", "real", "twin", "off by"), [
        [row["name"], *(format_with_unit(row[each], row["unit"]) for each in ("real", "twin")), format_difference(row["off"], row["unit"])]  # noqa: E501
        for row in near["figures"]])  # fmt: skip
    yield ReportTable("Mean waits by class", ("class", "jobs", "real", "twin", *_DIFF_HEADS, "within 5 min"), [
        [_class_label(row), f"{row['jobs']:,}", format_duration(row["real_mean_wait_s"]), format_duration(row["twin_mean_wait_s"]),  # noqa: E501
         format_difference(row["difference_s"], "s"), format_difference_range(row["difference_interval_s"], "s"),
         format_percent(row["within_tolerance"])] for row in near["classes"]])  # fmt: skip
    if near["use_together"] is not None:
        together = f"Real and replayed use, hour by hour, have a correlation of {near['use_together']:.2f}."
        yield ReportParagraph(together, "quiet")


def _timeline_blocks(found: Found) -> Iterator[ReportBlock]:
    names = {"real": found["lines"]["real"], "twin": found["lines"]["twin"]}
    names |= {quote_value(case["name"], 30): case["lines"] for case in found["cases"]}
    spread = {name: ([max(0.0, s) for s in each["wait_quantiles_s"]], [float(q) for q in QUANTILES])
              for name, each in names.items()}  # fmt: skip
    some = [at for at, part in enumerate(QUANTILES) if part in (10, 50, 80, 90, 96, 100)]
    yield ReportHeading("Waits, queue and use")
    yield ReportFigure(
        lambda: svg_charts.draw_line_plot(spread, "wait, s", "% of jobs with at most this wait", "waits", True),
        ReportTable("Waits", ("", *(f"{QUANTILES[at]} % within" for at in some)),
              [[name, *(format_duration(each["wait_quantiles_s"][at]) for at in some)] for name, each in names.items()]),  # noqa: E501
    )  # fmt: skip
    begin, end = (datetime.fromisoformat(found["window"][name]) for name in ("from", "to"))
    days = (end - begin).total_seconds() / 86_400
    for key, up, factor in (("waiting", "waiting jobs", 1.0), ("used", "% of the processors in use", 100.0)):
        values = {name: [factor * value for value in each[key]] for name, each in names.items()}
        series = {
            name: ([days * (at + 0.5) / len(each) for at in range(len(each))], each) for name, each in values.items()
        }
        rows = [
            [name, f"{sum(each) / max(1, len(each)):.1f}", f"{max(each, default=0.0):.1f}"]
            for name, each in values.items()
        ]
        yield ReportFigure(
            partial(svg_charts.draw_line_plot, series, "day", up, key),
            ReportTable(_capitalize(up), ("", "mean", "most"), rows),
        )


def _share_blocks(found: Found) -> Iterator[ReportBlock]:
    """Yield a table of each account's share, target usage and actual usage.

    The last row is the usage beyond the targets.
    """
    twin = found["shares"]["twin"]
    if twin is None:
        return
    made = [found["shares"]["real"], twin, *(case["shares"] for case in found["cases"])]
    got = [{row["account"]: row["used"] for row in each["accounts"]} if each else {} for each in made]
    by_use = sorted(twin["accounts"], key=lambda row: -max(row["used"], row["share"]))
    rows = [
        [quote_value(row["account"]) or "none", format_percent(row["share"], 1), format_percent(row["due"], 1),
         *(format_percent(each.get(row["account"], 0.0), 1) for each in got)] for row in by_use[:MAX_ACCOUNTS]
    ]  # fmt: skip
    apart = (format_percent(each["distance"], 1) if each else "-" for each in made)
    yield ReportHeading("Use compared with shares")
    heads = _headings_with_cases(found, "account", "share", "target in the twin", "real")
    yield ReportTable("Share of all use in the window", heads, [*rows, ["use beyond the targets", "", "", *apart]])


def _stranded_blocks(found: Found) -> Iterator[ReportBlock]:
    """Yield a table of the capacity that was unused while jobs waited, by cause.

    Omit causes without unused capacity.
    """
    every = [found["stranded"], *(case["stranded"] for case in found["cases"])]
    rows = [
        [each[0]["what"], each[0]["cause"], *(format_percent(row["part"], 1) for row in each)]
        for each in zip(*every, strict=True)
        if any(row["part"] > 0 for row in each)
    ]
    yield ReportHeading("Capacity unused while jobs waited")
    if rows:
        yield ReportTable("Share of the machine, sampled hourly", _headings_with_cases(found, "what", "why"), rows)
    else:
        yield ReportParagraph("No hourly sample has both waiting jobs and unused capacity.")


def _case_blocks(case: Found, at: int) -> Iterator[ReportBlock]:
    if case["never_started"]:
        yield ReportParagraph(
            f"{format_count(case['never_started'], 'job')} started in the twin but never in this case, and not counted."
        )
    yield ReportTable("All judged jobs", ("figure", "twin", "here", *_DIFF_HEADS, "users who react", "significant?"), [
        [row["name"], *(format_with_unit(row[each], row["unit"]) for each in ("twin", "case")), *_difference_cells(row, row["unit"]),  # noqa: E501
         format_difference(row["half_closed"], row["unit"]), row["verdict"]] for row in case["figures"]])  # fmt: skip
    classes = ReportTable("Mean waits by class", ("class", "jobs", "twin", "here", *_DIFF_HEADS, "significant?"), [
        [_class_label(row), f"{row['jobs']:,}", format_duration(row["twin_mean_wait_s"]), format_duration(row["case_mean_wait_s"]),  # noqa: E501
         *_difference_cells(row, "s"), row["verdict"]] for row in case["classes"]])  # fmt: skip
    drawn = [row for row in case["classes"] if row["interval"] is not None and row["kind"] != "hour of the week"]
    drawn = sorted(drawn, key=lambda row: -row["jobs"])[:MAX_PLOTTED_CLASSES]
    if drawn:
        label = f"mean wait relative to the twin's, {{}} (the {len(drawn)} largest classes)"
        yield ReportFigure(_difference_plot([(_class_label(row, 30), row) for row in drawn], label, f"classes{at}"))
    yield classes
    if case["losers"]:
        times = ("twin_mean_wait_s", "case_mean_wait_s", "more_wait_s")
        yield ReportTable("Users with the largest increase in wait", ("user", "jobs", "twin", "here", "total increase"), [  # noqa: E501
            [quote_value(row["user"]), f"{row['jobs']:,}", *(format_duration(row[each]) for each in times)]
            for row in case["losers"]])  # fmt: skip


def _setup_blocks(found: Found) -> Iterator[ReportBlock]:
    yield ReportHeading("Replayed and omitted")
    yield ReportTable("Settings", ("setting", "value"), list(_setting_rows(found)))
    if found["cases"]:
        yield ReportTable("Cases", ("case", "dispatcher / predictor", "settings", "changes", "seeds"), [
            [quote_value(case["name"]), f"{case['dispatcher']} / {case['predictor']}", _format_pairs(case["settings"]),
             _format_pairs(case["changes"]), str(case["seeds"])] for case in found["cases"]])  # fmt: skip
    if found["left_out"]:
        yield ReportTable("Not replayed", ("reason", "jobs"), [[why, f"{n:,}"] for why, n in found["left_out"].items()])
    if found["notes"]:
        yield ReportList(found["notes"])


def _setting_rows(found: Found) -> Rows:
    """Yield the rows of a table with settings, version and digests."""
    window, system = found["window"], found["system"]
    yield ["window", f"{window['from']} to {window['to']}"]
    yield ["times", window["zone"]]
    yield from (["jobs, " + name, f"{count:,}"] for name, count in window["jobs"].items() if count)
    guessed = f", guessed by {system['guessed_by']}" if system["guessed_by"] else ""
    yield ["system", f"{quote_value(system['name'])}{guessed}"]
    yield ["twin", found["twin"]]
    yield from ([f"timing of {quote_value(case['name'])}", case["timing"]] for case in found["cases"])
    react = "users who react, too" if found["sessions"] else "open replays only"
    blocks = f"{found['blocks']['count']:,} {found['blocks']['kind']} resampled"
    yield ["intervals", f"95 %: {blocks}; {found['seeds']} seeds; {react}"]
    yield ["started later than in reality for lack of capacity", f"{found['late_begins']:,}"]
    yield ["cpsched", f"{found['version']}, {found['date']}"]
    yield from ([name, str(value) or "-"] for name, value in found.get("digests", {}).items())


# ------------------------------------------------------------------------------------------ parts


def _difference_plot(
    rows: Sequence[tuple[str, Found]], label: str, name: str, band_s: float = 0.0
) -> Callable[[], str]:
    """Return a function that draws a dot plot of differences with intervals.

    The unit depends on the largest difference. The label states the unit.
    """
    most = max(band_s, *(abs(each) for _, row in rows for each in row["interval"]))
    unit_s, unit = (1, "s") if most < 300 else (60, "min") if most < 3 * 3600 else (3600, "h")
    dots = [
        (each, row["difference"] / unit_s, row["interval"][0] / unit_s, row["interval"][1] / unit_s)
        for each, row in rows
    ]
    return lambda: svg_charts.draw_dot_plot(dots, label.format(unit), band_s / unit_s, name)


def _difference_cells(row: Found, unit: str) -> tuple[str, str]:
    return format_difference(row["difference"], unit), format_difference_range(row["interval"], unit)


def _headings_with_cases(found: Found, *heads: str) -> Sequence[str]:
    return *heads, "twin", *(quote_value(case["name"]) for case in found["cases"])


def _class_label(row: Found, most: int = 80) -> str:
    return f"{row['kind']}: {quote_value(row['name'], most)}"


def _format_pairs(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_value(name)}={quote_value(value)}" for name, value in settings.items()) or "-"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------------------------------ CSV tables


def gains_csv_rows(found: Found) -> Iterator[Sequence[object]]:
    """Yield the rows of gains.csv: every metric and class in every case."""
    yield (
        "case", "kind", "name", "unit", "jobs", "twin", "case_value", "difference", "low", "high", "twin_error",
        "verdict",
    )  # fmt: skip
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


def fidelity_csv_rows(found: Found) -> Iterator[Sequence[object]]:
    """Yield the rows of fidelity.csv: the twin and the real starts, by class."""
    yield "kind", "name", "jobs", "real_mean_wait_s", "twin_mean_wait_s", "difference_s", "low", "high", "within_5_min"
    for row in found["fidelity"]["classes"]:
        low, high = row["difference_interval_s"] or ("", "")
        yield (row["kind"], row["name"], row["jobs"], row["real_mean_wait_s"], row["twin_mean_wait_s"],
               row["difference_s"], low, high, row["within_tolerance"])  # fmt: skip


def losers_csv_rows(found: Found) -> Iterator[Sequence[object]]:
    """Yield the rows of losers.csv: the users whose waits increase the most."""
    yield "case", "user", "jobs", "twin_mean_wait_s", "case_mean_wait_s", "more_wait_s"
    for case in found["cases"]:
        for row in case["losers"]:
            yield case["name"], *row.values()
