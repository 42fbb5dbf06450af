"""The report of a cycle with many similar events."""

from cpsched_bridge.cycle_report import MAX_EVENTS_PER_KIND, CycleEvent, limit_events_per_kind


def some(kind: str, count: int) -> list[CycleEvent]:
    return [CycleEvent(kind, "so", job_id) for job_id in range(count)]


def test_keeps_few_events_of_each_kind() -> None:
    bridge_events = [*some("unmanaged", MAX_EVENTS_PER_KIND), *some("start_failed", 3)]
    assert limit_events_per_kind(bridge_events) == bridge_events


def test_summarizes_many_similar_events() -> None:
    found = limit_events_per_kind([*some("unmanaged", 1000), *some("start_failed", 1)])
    assert found[:MAX_EVENTS_PER_KIND] == some("unmanaged", MAX_EVENTS_PER_KIND)
    rest = 1000 - MAX_EVENTS_PER_KIND
    assert found[MAX_EVENTS_PER_KIND:] == [
        CycleEvent("start_failed", "so", 0),
        CycleEvent("unmanaged", f"and {rest} more events of this kind", times=rest),
    ]
    assert sum(each.times for each in found) == 1001
    assert limit_events_per_kind(found) == found
