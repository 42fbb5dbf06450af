"""Print the commands' output as text: rounds, reasons, status, and checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
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
    format_wait,
)
from cpsched.model import Cluster, Placement
from cpsched_bridge.effective_config import EffectiveConfig, to_yaml
from cpsched_bridge.ports import UNKNOWN_NODES, ReadinessCheck
from cpsched_bridge.program import json_output
from cpsched_bridge.program.json_output import RecordedJobFacts, Values, find_job_facts
from cpsched_bridge.program.preemption_status import PreemptionStatus
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import RoundSummary, UnscheduledJob
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from cpsched_bridge.store.round_records import RoundRecord
from cpsched_bridge.store.state_paths import heartbeat_age_s
from cpsched_bridge.web.job_explanation import (
    explain_job_in_view,
    format_easy_comparison,
    format_easy_targets,
    format_time_limit,
    summarize_reason,
    view_from_round,
)
from cpsched_bridge.web.page_schema import QueuedJobView
from cpsched_sim.command_conventions import print_json

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


def print_round(record: RoundRecord) -> None:
    """Print the output of `cpsched journal show`.

    Replay the decision if explanations are no longer stored.
    """
    out, effort = make_console(), record.effort
    record, explanation = add_replayed_explanation(record)
    out.print(
        f"round {record.number}, {format_unix_time(record.at_unix_s)} UTC, cluster second {record.now_s}, {record.mode}"
    )
    out.print(f"policy {record.policy.dispatcher} {dict(record.policy.dispatcher_settings) or ''}".rstrip(), end=", ")
    out.print(f"predictor {record.policy.predictor}, path {effort.path} {effort.status}".rstrip())
    out.print(
        f"{len(record.queue)} queued, {len(record.running)} running, {effort.considered} considered, "
        f"{effort.variables} variables, objective {effort.objective}, solver {format_milliseconds(effort.solver_s)}"
    )
    if line := format_easy_comparison(effort.ratios):
        out.print(line)
    if record.failure:
        out.print(f"the decision failed: {record.failure}")
    out.print("seconds: " + ", ".join(f"{phase} {value:.4f}" for phase, value in record.seconds.items()))
    if explanation:
        out.print(explanation)
    _print_queue(out, record)
    if record.outcomes:
        sent = make_table("command", "job", "result", "detail", title="sent")
        for kind, outcome in record.outcomes:
            sent.add_row(kind, record.get_job_name(outcome.job_id), outcome.result, outcome.detail)
        out.print(sent)


def add_replayed_explanation(record: RoundRecord) -> tuple[RoundRecord, str]:
    """Return the round with its plan and reasons, and a note on their source."""
    if record.explained or record.failure:
        return record, ""
    from cpsched_bridge.store.round_replay import replay_round
    from cpsched_sim.file_io import read_setting_file

    again = replay_round(record, read_setting_file)
    if not again.is_same_decision:
        why = again.skipped or again.differences[0]
        return record, f"plan and reasons are no longer stored, and the decision cannot be replayed: {why}"
    return replace(record, plan=again.plan, waits=again.waits), "plan and reasons: from a replay with the same result"


def _print_queue(out: Console, record: RoundRecord) -> None:
    jobs = make_table("job", "user", "units", "per unit", "waited", "estimate", "decision", title="queue")
    for job, shown in zip(record.queue, view_from_round(record).queue, strict=True):
        row = (shown.label, job.user, str(job.request.units), "/".join(map(str, job.request.per_unit)))
        times = (format_wait(job.submit_s, record.now_s), format_time_limit(shown.estimate_s))
        jobs.add_row(*row, *times, _format_job_decision(shown, record))
    out.print(jobs)


def _format_job_decision(job: QueuedJobView, record: RoundRecord) -> str:
    behind = (
        f" (behind {join_abbreviated(job.behind, len(job.behind), text=record.get_job_name)})" if job.behind else ""
    )
    waits = job.reason is not None and job.expected_s is not None
    expected = (
        f"; expected in {format_duration(job.expected_s - record.now_s)}"
        if waits and job.expected_s is not None
        else ""
    )
    return summarize_reason(job, record.mode) + behind + expected


def replay_recorded_rounds(journal: Journal, numbers: Iterable[int]) -> Iterator[ReplayedRound]:
    """Return an iterator that repeats recorded decisions and yields the results."""
    from cpsched_bridge.store.round_replay import replay_round
    from cpsched_sim.file_io import read_setting_file

    return (replay_round(journal.read_round(number), read_setting_file) for number in numbers)


def print_replays(results: Iterable[ReplayedRound]) -> bool:
    """Print the output of `cpsched journal replay`.

    Return whether no replayed decision differs.
    """
    out = make_console()
    same = different = skipped = 0
    reasons: set[str] = set()
    for result in results:
        if result.skipped:
            skipped += 1
            reasons.add(result.skipped)
        elif result.is_same_decision:
            same += 1
        else:
            different += 1
            out.print(f"round {result.number}: the result differs")
            for difference in result.differences[:10]:
                out.print(f"  {difference}", highlight=False)
    for reason in sorted(reasons):
        out.print(f"not replayed: {reason}")
    out.print(f"{format_count(same, 'round')} the same, {different} different, {skipped} not replayed")
    return different == 0


def format_answer(answer: Mapping[str, Any]) -> list[str]:
    """Return the bridge's explanation of a job as lines."""
    return [f"job {answer['label']}: {answer['state'].replace('_', ' ')}", *answer["sentences"]]


def print_why(text: str, settings: Settings, answer: Mapping[str, Any] | None = None) -> None:
    """Print the output of `cpsched why`. Raise `UnknownJob`.

    `answer` is that of the running bridge. Without one, the files give the explanation. Include the errors from
    unreadable files.
    """
    out, found = make_console(), find_job_facts(text, settings)
    if answer is None:
        stop = json_output.describe_stop(settings)
        lines = [*([f"The bridge is not running, {stop}. This is its last round."] if stop else []),
                 *_format_job_explanation(found)]  # fmt: skip
    else:
        lines = format_answer(answer)
    for line in (
        *lines,
        *_explain_last_boost(found, settings),
        *_explain_ledger_entry(found.entry, found.ran_s),
        *found.unreadable,
    ):
        out.print(line)
    _print_events(out, (json_output.event_to_json(event, lambda _: text) for event in found.events))


def _format_job_explanation(found: RecordedJobFacts) -> list[str]:
    record, past, lines = found.record, found.past, list[str]()
    if record is not None:
        answer = explain_job_in_view(view_from_round(record, past, found.aside), str(found.job_id))
        as_of = f"round {record.number}, {format_unix_time(record.at_unix_s)} UTC, {record.policy.dispatcher}, mode {record.mode}"  # noqa: E501
        state = "not considered" if answer.state == "aside" else answer.state
        lines = [f"job {answer.label}: {state} ({as_of})", *answer.format_lines()] if state != "unknown" else []
        if lines and (line := format_easy_comparison(record.effort.ratios)):
            lines.append(line)
        sets = [job.request.node_set for job in record.queue if job.id == found.job_id]
        lines += [f"allowed nodes: {record.cluster.node_set_names[node_set]}" for node_set in sets if node_set]
    if past is not None and not (found.was_pending or found.was_running):
        place = f" on {past.nodes}" if past.nodes else ""
        ended = (
            f"ended at {format_cluster_time(past.end_s)}"
            if past.end_s is not None
            else f"not observed since round {past.round}"
        )
        lines.append(f"job {past.label or past.job_id}: started at {format_cluster_time(past.start_s)}{place}, {ended}")
    return lines


def _explain_last_boost(found: RecordedJobFacts, settings: Settings) -> list[str]:
    """Return, in advise mode, a line about the job's last boost."""
    if settings.mode != "advise" or not found.was_pending:
        return []
    points, since = "no boost by the bridge", ""
    if found.advised is not None:
        points, since = f"last boost {found.advised[0]:,}", f" at {format_cluster_time(found.advised[1])}"
    return [f"advise mode: the cluster's own scheduler starts the jobs; {points}{since}"]


def _explain_ledger_entry(entry: ManagedJobEntry | None, ran_s: int | None) -> list[str]:
    if entry is None:
        return []
    failures = f", {format_count(entry.failures, 'failed attempt')}" if entry.failures else ""
    leave = f"; not managed again: {entry.unmanaged_reason}" if entry.leave else ""
    nodes = f", last sent to {','.join(name for name, _ in entry.nodes)}" if entry.nodes else ""
    seen = (
        f", observed running at {format_cluster_time(ran_s)}"
        if ran_s is not None and entry.state is not LedgerState.RUNNING
        else ""
    )
    return [
        f"ledger: {entry.state} since {format_cluster_time(entry.since_s)}: {entry.why}{seen}{nodes}{failures}{leave}"
    ]


def _print_events(out: Console, events: Iterable[Values]) -> None:
    for event in events:
        job = f" job {event['label']}" if event["label"] is not None else ""
        out.print(
            f"{format_unix_time(event['at_unix_s'])} round {event['round']}{job} {event['kind']}: {event['detail']}"
        )


def print_events(settings: Settings, last: int, job: str, kind: str) -> None:
    """Print the output of `cpsched events`."""
    out, found = make_console(), json_output.list_events(settings, last, job, kind)
    _print_events(out, found)
    if not found:
        out.print("no matching event")


def print_status(settings: Settings) -> bool:
    """Print the output of `cpsched status`. Return whether all files were read."""
    out, found = make_console(), json_output.collect_status(settings)
    stop = found["stopped"]
    out.print(f"bridge: not running, {stop}" if stop else "bridge: running")
    paused = f"; paused: {found['paused']}{_format_ago(found['paused_ago_s'])}" if found["paused"] else ""
    out.print(f"configured mode: {settings.mode}{paused}")
    for name in ("mode", "transport"):  # as last recorded by the bridge, which may differ from the settings
        if event := found[name]:
            out.print(f"{name} since {format_unix_time(event['at_unix_s'])} UTC: {event['detail']}")
    if beginning := found["beginning"]:
        out.print(f"no decision yet: {beginning['doing']} (reported {format_duration(beginning['ago_s'])} ago)")
    out.print(f"last good cycle: {_read_and_format_last_good_cycle(settings)}")
    if last := found["last_round"]:
        ago_s = last["ago_s"]
        ago = (
            f"{format_duration(ago_s)} ago"
            if ago_s >= -_CLOCK_TOLERANCE_S
            else f"{format_duration(-ago_s)} in the future (the clock was set back)"
        )
        jobs = f"{last['queued']} queued, {last['running']} running"
        out.print(f"last round: {last['number']}, {ago}, {last['mode']}; {jobs}")
    if kept := found["journal"]:
        size = f"{kept['bytes'] / 2**20:.0f} of {kept['max_mib']:.0f} MiB"
        out.print(
            f"journal: since round {kept['first_round']}, {format_unix_time(kept['first_at_unix_s'])} UTC, {size}"
        )
    if found["ledger"] is not None:
        out.print("ledger: " + (", ".join(f"{count} {state}" for state, count in found["ledger"].items()) or "empty"))
        out.print(f"held by the bridge: {found['held']}")
    if found["preemption"] is not None:
        out.print(f"choice of victims: {PreemptionStatus(**found['preemption'])}")
    if found["put_off"] is not None:
        jobs, users = found["put_off"].values()
        if jobs:
            out.print(f"in backoff: {format_count(jobs, 'job')} from {format_count(users, 'user')} (`cpsched events`)")
        out.print(f"unmanaged: {found['left']} (`cpsched unmanaged`)")
    if facts := found["remembered"]:
        out.print(f"remembered: {format_count(len(facts), 'entry', 'entries')} (`cpsched forget`)")
        for fact in facts[:_MAX_REMEMBERED_LINES]:
            out.print(f"  {fact['whom']}: {fact['what']}{_format_ago(fact['ago_s'])}")
    if found["put_off"] is not None:
        _print_events(out, found["events"])
    for line in found["unreadable"]:
        out.print(line)
    return not found["unreadable"]


def _format_ago(age_s: float | None) -> str:
    return "" if age_s is None else f" ({format_duration(age_s)} ago)"


def _read_and_format_last_good_cycle(settings: Settings) -> str:
    try:
        return format_last_good_cycle_age(heartbeat_age_s(settings))
    except OSError as error:
        return f"unknown: the heartbeat cannot be read: {error.strerror or error}"


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


def print_unmanaged(asides: Sequence[UnscheduledJob]) -> None:
    """Print the output of `cpsched unmanaged`."""
    out = make_console()
    if not asides:
        out.print("no pending job is unmanaged")
        return
    found = make_table("job", "user", "reason")
    for aside in asides:
        found.add_row(aside.label or str(aside.job_id), aside.user, aside.reason)
    out.print(found)


def print_effective_config(effective: EffectiveConfig, settings: Settings, as_json: bool) -> None:
    """Print the output of `cpsched config`.

    Include the last round's ratios to EASY and the weight.
    """
    targets = effective.easy_ratio_targets
    fallback = None if effective.fallback is None else str(effective.fallback)
    ratios, unreadable = json_output.read_easy_ratios(settings)
    if as_json:
        rows = [asdict(row) for row in effective.rows]
        values = {"policy": str(effective.policy), "fallback": fallback, "settings": rows, "easy_targets": targets}
        print_json(values | {"easy_ratios": ratios, "unreadable": unreadable})
        return
    out = make_console()
    out.print(f"policy: {effective.policy}")
    out.print(f"fallback: {fallback or 'none'}")
    for line in (format_easy_targets(targets), format_easy_comparison(ratios), *unreadable):
        if line:
            out.print(line)
    found = make_table("setting", "value", "source")
    for row in effective.rows:
        found.add_row(row.name, to_yaml(row.value), row.source)
    out.print(found)


def print_checks(checks: Sequence[ReadinessCheck]) -> None:
    """Print the output of `cpsched doctor`."""
    found = make_table("check", "", "result", "fix")
    for check in checks:
        mark = "ok" if check.ok else "FAILS" if check.required else "warning"
        found.add_row(check.name, mark, check.detail, "" if check.ok else check.fix)
    make_console().print(found)
