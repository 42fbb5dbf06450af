"""What the commands print: rounds, reasons, status, checks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cpsched.errors import printable
from cpsched.model import Cluster, Job, Placement
from cpsched_bridge.errors import UnknownJob
from cpsched_bridge.ports import Check, Outcome
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import Aside, Event, RoundLine
from cpsched_bridge.store.ledger import KEPT, Entry, Ledger
from cpsched_bridge.store.places import heartbeat_age_s
from cpsched_bridge.store.rounds import RoundRecord

_UNBROKEN = 240


class PlainConsole(Console):
    """A console that shows words as they are: users name their jobs `[red]`, `:bomb:` or worse.

    What would steer a terminal, or has no place in a line, is shown escaped.
    """

    def render_str(self, text: str, *, style: str | Style = "", **options: Any) -> Text:
        """`text`, in a cell or in a line, without a look at what is in it."""
        justify, overflow = options.get("justify"), options.get("overflow")
        return Text(printable(text), style, justify=justify, overflow=overflow)


def console() -> Console:
    """Standard output; lines are not broken where nobody looks at them."""
    found = PlainConsole(highlight=False)
    return found if found.is_terminal else PlainConsole(highlight=False, width=_UNBROKEN)


def clock(unix_s: float) -> str:
    """A wall-clock time."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A duration, to the second."""
    return str(timedelta(seconds=round(seconds)))


def where(placement: Placement, cluster: Cluster) -> str:
    """A placement by node names, with the units there where more than one."""
    return ",".join(cluster.node_names[node] + (f"*{units}" if units > 1 else "") for node, units in placement)


def table(*columns: str, title: str = "") -> Table:
    """A table without ornaments."""
    found = Table(*columns, title=title or None, box=None, pad_edge=False, title_justify="left")
    found.columns[-1].overflow = "fold"
    return found


def print_rounds(lines: Sequence[RoundLine]) -> None:
    """`cpsched journal list`."""
    found = table("round", "time (UTC)", "cluster s", "mode", "queued", "running", "starts", "path")
    for line in lines:
        numbers = map(str, (line.queued, line.running, line.starts))
        found.add_row(str(line.number), clock(line.at_unix_s), str(line.now_s), line.mode, *numbers, line.path)
    console().print(found)


def print_round(record: RoundRecord, outcomes: Sequence[tuple[str, Outcome]], seconds: Mapping[str, float]) -> None:
    """`cpsched journal show`."""
    out, effort = console(), record.effort
    out.print(f"round {record.number}, {clock(record.at_unix_s)} UTC, cluster second {record.now_s}, {record.mode}")
    out.print(f"policy {record.policy.dispatcher} {dict(record.policy.dispatcher_settings) or ''}".rstrip(), end=", ")
    out.print(f"predictor {record.policy.predictor}, path {effort.path} {effort.status}".rstrip())
    out.print(
        f"{len(record.queue)} queued, {len(record.running)} running, {effort.considered} considered, "
        f"{effort.variables} variables, objective {effort.objective}, solver {1e3 * effort.solver_s:.1f} ms"
    )
    if record.failure:
        out.print(f"the decision failed: {record.failure}")
    out.print("seconds: " + ", ".join(f"{phase} {value:.4f}" for phase, value in seconds.items()))
    _print_queue(out, record)
    if outcomes:
        sent = table("command", "job", "result", "detail", title="sent")
        for kind, outcome in outcomes:
            sent.add_row(kind, str(outcome.job_id), outcome.result, outcome.detail)
        out.print(sent)


def _print_queue(out: Console, record: RoundRecord) -> None:
    jobs = table("job", "user", "units", "per unit", "waited", "estimate", "decision", title="queue")
    for job in record.queue:
        row = (str(job.id), job.user, str(job.request.units), "/".join(map(str, job.request.per_unit)))
        times = (span(record.now_s - job.submit_s), span(record.estimates[job.id]))
        jobs.add_row(*row, *times, _decision(job, record))
    out.print(jobs)


def _decision(job: Job, record: RoundRecord) -> str:
    if job.id in record.starts:
        return "starts on " + where(record.starts[job.id], record.cluster)
    parts = []
    if job.id in record.waits:
        wait = record.waits[job.id]
        parts.append(wait.reason + (f" (behind {_ids(wait.behind)})" if wait.behind else ""))
    if job.id in record.plan:
        parts.append(f"expected in {span(record.plan[job.id] - record.now_s)}")
    return "; ".join(parts) or "waits"


def _ids(ids: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown


def print_replays(journal: Journal, numbers: Iterable[int]) -> bool:
    """`cpsched journal replay`; whether every round that could be replayed came out the same."""
    from cpsched_bridge.store.redecide import decide_again
    from cpsched_sim.files import read_json

    out = console()
    same = different = skipped = 0
    reasons: set[str] = set()
    for number in numbers:
        result = decide_again(journal.read(number), read_json)
        if result.skipped:
            skipped += 1
            reasons.add(result.skipped)
        elif result.same:
            same += 1
        else:
            different += 1
            out.print(f"round {number}: different")
            for difference in result.differences[:10]:
                out.print(f"  {difference}", highlight=False)
    for reason in sorted(reasons):
        out.print(f"not replayed: {reason}")
    out.print(f"{same} rounds the same, {different} different, {skipped} not replayed")
    return different == 0


def print_why(text: str, journal: Journal, ledger: Ledger) -> None:
    """`cpsched why`; raises `UnknownJob`."""
    out = console()
    aside = next((a for a in journal.asides() if text in (str(a.job_id), a.label)), None)
    entry = next((e for e in ledger.entries() if text in (str(e.job_id), e.label)), None)
    job_id = aside.job_id if aside else entry.job_id if entry else int(text) if text.isdigit() else -1
    record = journal.read(journal.last_round) if journal.last_round else None
    lines = [*_why_in_round(job_id, record), *_why_aside(aside), *_why_entry(entry)]
    if not lines:
        raise UnknownJob(f"job={text}: neither the ledger nor the last round knows it")
    for line in lines:
        out.print(line)
    _print_events(out, journal.events(job_id, limit=10))


def _why_in_round(job_id: int, record: RoundRecord | None) -> list[str]:
    if record is None:
        return []
    for position, job in enumerate(record.queue, start=1):
        if job.id == job_id:
            estimate = f"{record.policy.predictor} expects {span(record.estimates[job.id])}"
            asked = f"asked for {span(job.walltime_s)}; {estimate}"
            waited = span(record.now_s - job.submit_s)
            return [
                f"job {job_id}: {position} of {len(record.queue)} in the queue, waited {waited}",
                f"{_decision(job, record)} (round {record.number}, {record.policy.dispatcher})",
                asked,
            ]
    for running in record.running:
        if running.job.id == job_id:
            left_s = running.start_s + record.estimates[job_id] - record.now_s
            ends = f"expected to end in {span(left_s)}" if left_s > 0 else "has outlived its estimate"
            return [f"job {job_id}: runs on {where(running.placement, record.cluster)}, {ends}"]
    return []


def _why_aside(aside: Aside | None) -> list[str]:
    return [f"job {aside.job_id}: not decided on at present ({aside.kind}): {aside.reason}"] if aside else []


def _why_entry(entry: Entry | None) -> list[str]:
    if entry is None:
        return []
    failures = f", {entry.failures} failed attempts" if entry.failures else ""
    leave = f"; not taken again: {entry.leave}" if entry.leave else ""
    return [f"ledger: {entry.state} since cluster second {entry.since_s}: {entry.why}{failures}{leave}"]


def _print_events(out: Console, events: Sequence[Event]) -> None:
    for event in events:
        job = f" job {event.job_id}" if event.job_id is not None else ""
        out.print(f"{clock(event.at_unix_s)} round {event.round}{job} {event.kind}: {event.detail}")


def print_status(settings: Settings, paused: str | None, journal: Journal, ledger: Ledger) -> None:
    """`cpsched status`."""
    out = console()
    out.print(f"configured mode: {settings.mode}" + (f"; paused: {paused}" if paused else ""))
    age_s = heartbeat_age_s(settings)
    out.print("last good cycle: " + ("never" if age_s is None else f"{span(age_s)} ago"))
    lines = journal.lines(1)
    if lines:
        last = lines[0]
        ago = span(max(0.0, time.time() - last.at_unix_s))
        out.print(f"last round: {last.number}, {ago} ago, {last.mode}; {last.queued} queued, {last.running} running")
    counts = {state: count for state, count in ledger.counts().items() if count}
    out.print("ledger: " + (", ".join(f"{count} {state}" for state, count in counts.items()) or "empty"))
    out.print(f"held by the bridge: {sum(counts.get(state, 0) for state in KEPT)}")
    out.print(f"left to the cluster's scheduler: {len(journal.asides('unsupported'))} (`cpsched unsupported`)")
    _print_events(out, journal.events(limit=8))


def print_unsupported(asides: Sequence[Aside]) -> None:
    """`cpsched unsupported`."""
    out = console()
    if not asides:
        out.print("every pending job is supported")
        return
    found = table("job", "user", "reason")
    for aside in asides:
        found.add_row(aside.label or str(aside.job_id), aside.user, aside.reason)
    out.print(found)


def print_checks(checks: Iterable[Check]) -> bool:
    """`cpsched doctor`; whether everything that is required holds."""
    found = table("check", "", "found", "mend")
    good = True
    for check in checks:
        good = good and (check.ok or not check.required)
        mark = "ok" if check.ok else "FAILS" if check.required else "warning"
        found.add_row(check.name, mark, check.detail, "" if check.ok else check.mend)
    console().print(found)
    return good
