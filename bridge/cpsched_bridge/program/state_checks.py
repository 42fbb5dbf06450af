"""Summarize a bridge's state for `cpsched status` and `doctor`: pauses, memory and the choice of victims."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cpsched.formatting import format_cluster_time, format_count, format_duration
from cpsched_bridge.cycle.preemption_executor import HOUR_S, find_victim_choice_pause_end_s
from cpsched_bridge.errors import CorruptFile
from cpsched_bridge.ports import ReadinessCheck
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.lock_and_request_files import MemoryFile, PauseFile
from cpsched_bridge.store.state_paths import open_state_for_reading, state_path
from cpsched_bridge.store.state_tables import PreemptionLedger


def check_memory(settings: Settings) -> list[ReadinessCheck]:
    """Return warnings about a pause and about what the running bridge remembers, with ages."""
    if settings.mode == "shadow":
        return []
    checks = list[ReadinessCheck]()
    if (reason := PauseFile(settings.state_dir).read_reason()) is not None:
        age_s = PauseFile(settings.state_dir).read_age_s()
        ago = "" if age_s is None else f", {format_duration(age_s)} ago"
        checks.append(ReadinessCheck("pause", False, f"paused{ago}: {reason}", "cpsched resume", required=False))
    if facts := MemoryFile(settings.state_dir).read():
        fact = min(facts, key=lambda fact: fact.since_unix_s)
        oldest = f"{fact.subject}, {format_duration(fact.age_s)} ago: {fact.fact}"
        detail = f"{format_count(len(facts), 'entry', 'entries')} against jobs and users; oldest: {oldest}"
        fix = "see `cpsched status`; `cpsched forget job ID` or `cpsched forget user NAME` ends it"
        checks.append(ReadinessCheck("memory", False, detail, fix, required=False))
    return checks


@dataclass(frozen=True, slots=True)
class PreemptionStatus:
    """The last hour's preemptions, and the jobs that the bridge chose to stop."""

    preemptions: int
    victims: int
    paused_until_s: int | None
    """Cluster time until which the bridge chooses no victims after an ineffective preemption, or None if not paused."""

    def __str__(self) -> str:
        what = (
            f"{format_count(self.preemptions, 'preemption')}, {format_count(self.victims, 'victim')} in the last hour"
        )
        paused = f"; paused until {format_cluster_time(self.paused_until_s)}" if self.paused_until_s is not None else ""
        return f"on; {what}{paused}"


def read_preemption_status(settings: Settings, now_s: int | None = None) -> PreemptionStatus | None:
    """Return the status, or None if the bridge chooses no victims.

    `now_s` is the cluster time, by default this host's time. Raise `CorruptFile` if the ledger cannot be read.
    """
    if settings.mode != "control" or not settings.preemption.choose:
        return None
    now_s = int(time.time()) if now_s is None else now_s
    if not state_path(settings).exists():
        return PreemptionStatus(0, 0, None)
    with open_state_for_reading(settings) as file:
        ledger = PreemptionLedger(file)
    recent = [each for each in ledger.entries if each.since_s >= now_s - HOUR_S]
    victims = sum(len(each.what.victims) for each in recent)
    return PreemptionStatus(len(recent), victims, find_victim_choice_pause_end_s(ledger, now_s))


def check_victim_choice_not_paused(settings: Settings) -> list[ReadinessCheck]:
    """Return a check that the choice of victims is not paused.

    Return no check if the bridge chooses no victims.
    """
    try:
        status = read_preemption_status(settings)
    except CorruptFile as error:
        return [
            ReadinessCheck("victim choice", False, str(error), "restart the bridge, which moves the file aside", False)
        ]
    if status is None:
        return []
    ok = status.paused_until_s is None
    fix = "" if ok else "see `cpsched events --kind preemption_ineffective`; Slurm preempts meanwhile"
    return [ReadinessCheck("victim choice", ok, str(status), fix, required=False)]
