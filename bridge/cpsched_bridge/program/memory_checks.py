"""Check that the bridge is not paused and remembers nothing against jobs, users or groups."""

from __future__ import annotations

from cpsched.formatting import format_count, format_duration
from cpsched_bridge.ports import ReadinessCheck
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.state_paths import memory_file, pause_file


def check_memory(settings: Settings) -> list[ReadinessCheck]:
    """Return warnings about a pause and about what the running bridge remembers, with ages."""
    if settings.mode == "shadow":
        return []
    checks = list[ReadinessCheck]()
    if (reason := pause_file(settings).read_reason()) is not None:
        age_s = pause_file(settings).read_age_s()
        ago = "" if age_s is None else f", {format_duration(age_s)} ago"
        checks.append(ReadinessCheck("pause", False, f"paused{ago}: {reason}", "cpsched resume", required=False))
    if facts := memory_file(settings).read():
        fact = min(facts, key=lambda fact: fact.since_unix_s)
        oldest = f"{fact.subject}, {format_duration(fact.age_s)} ago: {fact.fact}"
        detail = f"{format_count(len(facts), 'entry', 'entries')} against jobs and users; oldest: {oldest}"
        fix = "see `cpsched status`; `cpsched forget job ID` or `cpsched forget user NAME` ends it"
        checks.append(ReadinessCheck("memory", False, detail, fix, required=False))
    return checks
