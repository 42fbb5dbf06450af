"""Print the commands' output as text: rounds, reasons, status, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cpsched.errors import escape_controls, join_abbreviated
from cpsched.formatting import (
    format_cluster_time,
    format_count,
    format_duration,
    format_milliseconds,
    format_unix_time,
)
from cpsched.model import Cluster, Placement
from cpsched_bridge.effective_config import to_yaml
from cpsched_bridge.ports import UNKNOWN_NODES, ReadinessCheck
from cpsched_bridge.program.bridge_reports import (
    ConfigReport,
    EventReport,
    JobReport,
    RoundReport,
    StatusReport,
    describe_stop,
)
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.journal_reader import JournalJobRecord, RoundSummary, UnscheduledJob
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from cpsched_bridge.store.lock_and_request_files import LeadershipStatus
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.views.job_explanation import (
    format_easy_comparison,
    format_easy_targets,
    format_job_wait,
    format_time_limit,
    summarize_reason,
)
from cpsched_bridge.views.job_view import JobState, JobView, view_recorded_jobs

if TYPE_CHECKING:
    from cpsched_bridge.store.round_replay import ReplayedRound

_MAX_LINE_CHARS = 240
_MAX_REMEMBERED_LINES = 20
"""Maximum number of remembered jobs, users and groups that `cpsched status` lists."""
_CLOCK_TOLERANCE_S = 2.0
"""Tolerance in seconds for times in the future, to allow for rounding and small clock corrections."""


class LiteralTextConsole(Console):
    """A console that ignores markup and escapes control characters.

    Users may name their jobs `[red]` or `:bomb:`. Line breaks are also escaped.
    """

    def render_str(self, text: str, *, style: str | Style = "", **options: Any) -> Text:
        """Return `text` without interpreting it."""
        justify, overflow = options.get("justify"), options.get("overflow")
        return Text(escape_controls(text), style, justify=justify, overflow=overflow)


def make_console() -> Console:
    """Return a console for standard output that wraps lines only on a terminal."""
    found = LiteralTextConsole(highlight=False)
    return found if found.is_terminal else LiteralTextConsole(highlight=False, width=_MAX_LINE_CHARS)


def format_placement(placement: Placement, cluster: Cluster) -> str:
    """Return a placement as node names, or a placeholder if no node is known.

    The number of units follows a name if it exceeds 1.
    """
    return (
        UNKNOWN_NODES
        if not placement
        else ",".join(cluster.node_names[node] + (f"*{units}" if units > 1 else "") for node, units in placement)
    )


def make_table(*columns: str, title: str = "") -> Table:
    """Return a table without borders."""
    found = Table(*columns, title=title or None, box=None, pad_edge=False, title_justify="left")
    found.columns[-1].overflow = "fold"
    return found


def print_rounds(lines: Sequence[RoundSummary]) -> None:
    """Print the output of `cpsched journal list`."""
    found = make_table("round", "time (UTC)", "cluster s", "mode", "queued", "running", "starts", "path")
    for line in lines:
        numbers = map(str, (line.queued, line.running, line.starts))
        found.add_row(
            str(line.number), format_unix_time(line.at_unix_s), str(line.now_s), line.mode, *numbers, line.path
        )
    make_console().print(found)


def print_round(report: RoundReport) -> None:
    """Print the output of `cpsched journal show`."""
    out, record = make_console(), report.record
    effort, policy = record.effort, record.policy
    at = f"{format_unix_time(record.at_unix_s)} UTC"
    out.print(f"round {record.number}, {at}, cluster second {record.now_s}, {record.mode}")
    out.print(f"policy {policy.dispatcher} {dict(policy.dispatcher_settings) or ''}".rstrip(), end=", ")
    out.print(f"predictor {policy.predictor}, path {effort.path} {effort.status}".rstrip())
    out.print(
        f"{len(record.queue)} queued, {len(record.running)} running, {effort.considered} considered, "
        f"{effort.variables} variables, objective {effort.objective}, solver {format_milliseconds(effort.solver_s)}"
    )
    if line := format_easy_comparison(effort.ratios):
        out.print(line)
    if record.failure:
        out.print(f"the decision failed: {record.failure}")
    out.print("seconds: " + ", ".join(f"{phase} {value:.4f}" for phase, value in record.seconds.items()))
    if report.note:
        out.print(report.note)
    _print_queue(out, record)
    if record.outcomes:
        sent = make_table("command", "job", "result", "detail", title="sent")
        for kind, outcome in record.outcomes:
            sent.add_row(kind, record.get_job_name(outcome.job_id), outcome.result, outcome.detail)
        out.print(sent)


def _print_queue(out: Console, record: RoundRecord) -> None:
    table = make_table("job", "user", "units", "per unit", "waited", "estimate", "decision", title="queue")
    for job, view in zip(record.queue, view_recorded_jobs(record).waiting, strict=True):
        amounts = "/".join(map(str, job.request.per_unit))
        waited, estimate = format_job_wait(view, record.now_s), format_time_limit(view.estimate_s)
        decision = _format_job_decision(view, record)
        table.add_row(view.label, view.user, str(job.request.units), amounts, waited, estimate, decision)
    out.print(table)


def _format_job_decision(job: JobView, record: RoundRecord) -> str:
    decision = summarize_reason(job, record.mode)
    if job.waits_for:
        names = join_abbreviated(job.waits_for, len(job.waits_for), text=record.get_job_name)
        decision += f" (waits for {names})"
    if not job.starts_now and job.planned_s is not None:
        decision += f"; planned in {format_duration(job.planned_s - record.now_s)}"
    return decision


def print_replays(results: Iterable[ReplayedRound]) -> None:
    """Print the output of `cpsched journal replay`."""
    out = make_console()
    same = different = 0
    skipped: list[str] = []
    for result in results:
        if result.skipped:
            skipped.append(result.skipped)
        elif result.is_same_decision:
            same += 1
        else:
            different += 1
            out.print(f"round {result.number}: the result differs")
            for difference in result.differences[:10]:
                out.print(f"  {difference}", highlight=False)
    for reason in sorted(set(skipped)):
        out.print(f"not replayed: {reason}")
    out.print(f"{format_count(same, 'round')} the same, {different} different, {len(skipped)} not replayed")


def format_answer(answer: Mapping[str, Any]) -> list[str]:
    """Return the bridge's explanation of a job as lines."""
    return [f"job {answer['label']}: {answer['state']}", *answer["sentences"]]


def print_why(report: JobReport, settings: Settings) -> None:
    """Print the output of `cpsched why`. Without the running bridge's answer, the files give the explanation."""
    out = make_console()
    if report.bridge is not None:
        lines = format_answer(report.bridge)
    else:
        stop = describe_stop(settings)
        lines = [f"The bridge is not running, {stop}. This is its last round."] if stop else []
        lines += _format_recorded_explanation(report)
    if settings.mode == "advise" and report.recorded_state is JobState.WAITING:
        lines.append(_format_last_boost(report))
    lines += _explain_ledger_entry(report.entry, report.ran_s)
    for line in (*lines, *report.unreadable):
        out.print(line)
    _print_events(out, report.events)


def _format_recorded_explanation(report: JobReport) -> list[str]:
    record, past, explanation = report.record, report.past, report.explanation
    lines = list[str]()
    if record is not None and explanation is not None:
        job = explanation.job
        as_of = f"round {record.number}, {format_unix_time(record.at_unix_s)} UTC"
        lines = [f"job {job.label}: {job.state} ({as_of}, {record.policy.dispatcher}, mode {record.mode})"]
        lines += explanation.format_lines()
        if line := format_easy_comparison(record.effort.ratios):
            lines.append(line)
        sets = [each.request.node_set for each in record.queue if each.id == report.job_id]
        lines += [f"allowed nodes: {record.cluster.node_set_names[node_set]}" for node_set in sets if node_set]
    if past is not None and report.recorded_state not in (JobState.WAITING, JobState.RUNNING):
        lines.append(_format_past_job(past))
    return lines


def _format_past_job(past: JournalJobRecord) -> str:
    place = f" on {past.nodes}" if past.nodes else ""
    ended = f"not observed since round {past.round}"
    if past.end_s is not None:
        ended = f"ended at {format_cluster_time(past.end_s)}"
    return f"job {past.label or past.job_id}: started at {format_cluster_time(past.start_s)}{place}, {ended}"


def _format_last_boost(report: JobReport) -> str:
    boost = "no boost by the bridge"
    if report.boost is not None:
        boost = f"last boost {report.boost.value:,} at {format_cluster_time(report.boost.since_s)}"
    return f"advise mode: the cluster's own scheduler starts the jobs; {boost}"


def _explain_ledger_entry(entry: ManagedJobEntry | None, ran_s: int | None) -> list[str]:
    if entry is None:
        return []
    failures = f", {format_count(entry.failures, 'failed attempt')}" if entry.failures else ""
    unmanaged = f"; not managed again: {entry.unmanaged_text}" if entry.unmanaged_reason else ""
    nodes = f", last sent to {','.join(name for name, _ in entry.nodes)}" if entry.nodes else ""
    seen = (
        f", observed running at {format_cluster_time(ran_s)}"
        if ran_s is not None and entry.state is not LedgerState.RUNNING
        else ""
    )
    state = f"ledger: {entry.state} since {format_cluster_time(entry.since_s)}: {entry.why}"
    return [f"{state}{seen}{nodes}{failures}{unmanaged}"]


def _print_events(out: Console, events: Iterable[EventReport]) -> None:
    for event in events:
        job = f" job {event.label}" if event.label is not None else ""
        out.print(f"{format_unix_time(event.at_unix_s)} round {event.round}{job} {event.kind}: {event.detail}")


def print_events(events: Sequence[EventReport]) -> None:
    """Print the output of `cpsched events`."""
    out = make_console()
    _print_events(out, events)
    if not events:
        out.print("no matching event")


def print_status(status: StatusReport) -> None:
    """Print the output of `cpsched status`."""
    out = make_console()
    out.print(f"bridge: not running, {status.stopped}" if status.stopped else "bridge: running")
    paused = f"; paused: {status.paused}{_format_ago(status.paused_ago_s)}" if status.paused else ""
    out.print(f"configured mode: {status.configured_mode}{paused}")
    for event in (status.mode, status.transport):  # as last recorded by the bridge, which may differ from the settings
        if event is not None:
            out.print(f"{event.kind} since {format_unix_time(event.at_unix_s)} UTC: {event.detail}")
    if status.leadership is not None:
        _print_leadership(out, status.leadership)
    if startup := status.startup:
        out.print(f"no decision yet: {startup.step} (reported {format_duration(startup.ago_s)} ago)")
    last_good_cycle = format_last_good_cycle_age(status.last_good_cycle_ago_s)
    if status.heartbeat_error is not None:
        last_good_cycle = f"unknown: the heartbeat cannot be read: {status.heartbeat_error}"
    out.print(f"last good cycle: {last_good_cycle}")
    if (last := status.last_round) is not None and (ago_s := status.last_round_ago_s) is not None:
        ago = f"{format_duration(ago_s)} ago"
        if ago_s < -_CLOCK_TOLERANCE_S:
            ago = f"{format_duration(-ago_s)} in the future (the clock was set back)"
        out.print(f"last round: {last.number}, {ago}, {last.mode}; {last.queued} queued, {last.running} running")
    if (extent := status.journal) is not None:
        size = f"{extent.bytes / 2**20:.0f} of {extent.max_mib:.0f} MiB"
        out.print(f"journal: since round {extent.first_round}, {format_unix_time(extent.first_at_unix_s)} UTC, {size}")
    if status.ledger is not None:
        out.print("ledger: " + (", ".join(f"{count} {state}" for state, count in status.ledger.items()) or "empty"))
        out.print(f"held by the bridge: {status.held}")
    if status.preemption is not None:
        out.print(f"choice of victims: {status.preemption}")
    if (backoff := status.backoff) is not None and backoff.jobs:
        users = format_count(backoff.users, "user")
        out.print(f"in backoff: {format_count(backoff.jobs, 'job')} from {users} (`cpsched events`)")
    if status.unmanaged is not None:
        out.print(f"unmanaged: {status.unmanaged} (`cpsched unmanaged`)")
    if status.remembered:
        out.print(f"remembered: {format_count(len(status.remembered), 'entry', 'entries')} (`cpsched forget`)")
        for fact in status.remembered[:_MAX_REMEMBERED_LINES]:
            out.print(f"  {fact.subject}: {fact.fact}{_format_ago(fact.age_s)}")
    _print_events(out, status.events)
    for line in status.unreadable:
        out.print(line)


def _print_leadership(out: Console, status: LeadershipStatus) -> None:
    leader = "this bridge" if status.is_here else escape_controls(status.leader) or "none"
    out.print(f"leader: {leader} since {format_unix_time(status.since_unix_s)} UTC")
    heard, next_leader = "not heard", "another bridge, if there is one,"
    if status.heard_unix_s is not None:
        heard = f"{escape_controls(status.other)}, last heard {format_unix_time(status.heard_unix_s)} UTC"
        next_leader = "the other bridge"
    if not status.is_here:
        next_leader = "this bridge"
    out.print(f"other bridge: {heard}; if the leader dies, {next_leader} takes over within {status.takeover_s:.0f} s")


def _format_ago(age_s: float | None) -> str:
    return "" if age_s is None else f" ({format_duration(age_s)} ago)"


def format_last_good_cycle_age(age_s: float | None) -> str:
    """Return the time since the last good cycle, as text."""
    if age_s is None:
        return "never"
    if age_s < -_CLOCK_TOLERANCE_S:
        return (
            f"unknown: the heartbeat is {format_duration(-age_s)} in the future, because this host's clock was set "
            "back; if the heartbeat does not change within seconds, the cycles fail"
        )
    return f"{format_duration(max(0.0, age_s))} ago"


def print_unmanaged(jobs: Sequence[UnscheduledJob]) -> None:
    """Print the output of `cpsched unmanaged`."""
    out = make_console()
    if not jobs:
        out.print("no pending job is unmanaged")
        return
    table = make_table("job", "user", "reason")
    for job in jobs:
        table.add_row(job.label or str(job.job_id), job.user, job.reason)
    out.print(table)


def print_effective_config(report: ConfigReport) -> None:
    """Print the output of `cpsched config`."""
    out = make_console()
    out.print(f"policy: {report.policy}")
    out.print(f"fallback: {report.fallback or 'none'}")
    for line in (
        format_easy_targets(report.easy_targets), format_easy_comparison(report.easy_ratios), *report.unreadable
    ):  # fmt: skip
        if line:
            out.print(line)
    table = make_table("setting", "value", "source")
    for row in report.settings:
        table.add_row(row.name, to_yaml(row.value), row.source)
    out.print(table)


def print_checks(checks: Sequence[ReadinessCheck]) -> None:
    """Print the output of `cpsched doctor`."""
    found = make_table("check", "", "result", "fix")
    for check in checks:
        if check.ok:
            found.add_row(check.name, "ok", check.detail, "")
        else:
            mark = "FAILS" if check.required else "warning"
            only_mode = f" ({check.mode} mode only)" if check.mode else ""
            found.add_row(check.name, mark, f"{check.detail}{only_mode}", check.fix)
    make_console().print(found)
