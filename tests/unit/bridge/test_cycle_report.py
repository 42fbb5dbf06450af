"""The report of a cycle with many similar events."""

from cpsched_bridge.cycle_report import MOST_ALIKE, CycleEvent, summarize_events


def some(kind: str, count: int) -> list[CycleEvent]:
    return [CycleEvent(kind, "so", job_id) for job_id in range(count)]


def test_a_few_of_each_kind_are_told_one_by_one() -> None:
    happenings = [*some("left_to_cluster", MOST_ALIKE), *some("start_failed", 3)]
    assert summarize_events(happenings) == happenings


def test_of_many_the_first_are_told_and_the_others_counted() -> None:
    found = summarize_events([*some("left_to_cluster", 1000), *some("start_failed", 1)])
    assert found[:MOST_ALIKE] == some("left_to_cluster", MOST_ALIKE)
    rest = 1000 - MOST_ALIKE
    assert found[MOST_ALIKE:] == [
        CycleEvent("start_failed", "so", 0),
        CycleEvent("left_to_cluster", f"and {rest} more of these", times=rest),
    ]
    assert sum(each.times for each in found) == 1001
    assert summarize_events(found) == found
