"""What a cycle tells, where much of the same has happened."""

from cpsched_bridge.report import MOST_ALIKE, Happening, summed_up


def some(kind: str, count: int) -> list[Happening]:
    return [Happening(kind, "so", job_id) for job_id in range(count)]


def test_a_few_of_each_kind_are_told_one_by_one() -> None:
    happenings = [*some("left_to_cluster", MOST_ALIKE), *some("start_failed", 3)]
    assert summed_up(happenings) == happenings


def test_of_many_the_first_are_told_and_the_others_counted() -> None:
    found = summed_up([*some("left_to_cluster", 1000), *some("start_failed", 1)])
    assert found[:MOST_ALIKE] == some("left_to_cluster", MOST_ALIKE)
    rest = 1000 - MOST_ALIKE
    assert found[MOST_ALIKE:] == [
        Happening("start_failed", "so", 0),
        Happening("left_to_cluster", f"and {rest} more of these", times=rest),
    ]
    assert sum(each.times for each in found) == 1001
    assert summed_up(found) == found
