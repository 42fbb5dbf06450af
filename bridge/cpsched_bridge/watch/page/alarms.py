"""What people have to look after, in one line each: the first thing on the page, and all that a wall has to shout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cpsched.errors import some_of
from cpsched_bridge.ports import Check, Outage
from cpsched_bridge.report import OK, CycleReport
from cpsched_bridge.watch.page.schema import Alarm
from cpsched_bridge.watch.page.words import many

_MOST_TOLD = 5


def alarms(
    last: CycleReport, paused: str, checks: Sequence[Check], outages: Sequence[Outage], names: Sequence[str]
) -> list[Alarm]:
    """The alarms of the last cycle, the urgent ones first. `checks`: as they were made last."""
    found = [*_of_the_bridge(last, paused), *_of_the_cluster(checks, outages, names)]
    return sorted(found, key=lambda each: not each.urgent)


def stalled(reasons: Sequence[str]) -> Alarm:
    """The alarm of a loop that does not seem to be alive."""
    return Alarm(urgent=True, words="The bridge hangs. What is shown is old.", details=list(reasons))


def _of_the_bridge(last: CycleReport, paused: str) -> Iterator[Alarm]:
    if paused:
        yield Alarm(urgent=True, words="The bridge starts no jobs.", details=[paused])
    if last.result != OK:
        told = [each.detail for each in last.happenings if each.kind == last.result][:_MOST_TOLD]
        words = f"The last cycle failed: {last.result.replace('_', ' ')}. What is shown of the cluster is older."
        yield Alarm(urgent=True, words=words, details=told)
    if last.fallback:
        yield Alarm(urgent=False, words="The fallback decides in place of the dispatcher.", details=[])
    if last.slowed:
        words = f"The cluster is busy: a cycle every {last.pause_s:.3g} s."
        yield Alarm(urgent=False, words=words, details=[last.observation.busy] if last.observation else [])
    if last.tuning is not None and last.tuning.status:
        yield Alarm(urgent=False, words=f"The tuner, mode {last.tuning.mode}.", details=[last.tuning.status])
    if last.stuck:
        words = f"{many(last.stuck, 'job does', 'jobs do')} not follow the bridge's commands."
        yield Alarm(urgent=False, words=words, details=[])


def _of_the_cluster(checks: Sequence[Check], outages: Sequence[Outage], names: Sequence[str]) -> Iterator[Alarm]:
    for check in checks:
        if not check.ok:
            mend = [check.mend] if check.mend else []
            yield Alarm(urgent=False, words=f"Check {check.name} fails: {check.detail}", details=mend)
    down = sorted({node for each in outages if each.kind == "down" for node in each.nodes})
    if down:
        told = some_of(down, _MOST_TOLD, text=names.__getitem__)
        yield Alarm(urgent=False, words=f"{many(len(down), 'node is', 'nodes are')} down.", details=[told])
