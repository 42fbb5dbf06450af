import pytest

from cpsched_bridge.cycle.guard import Allowance, FailureWatch, require_ready
from cpsched_bridge.errors import NotReady
from cpsched_bridge.ports import Check
from cpsched_bridge.settings import GuardSettings


def test_an_allowance_serves_the_first_that_come():
    allowance = Allowance(3)
    assert allowance.take([1, 2]) == [1, 2]
    assert allowance.take([3, 4]) == [3]
    assert allowance.take([5]) == []


def test_failed_starts_count_within_the_window_and_only_if_most_fail():
    watch = FailureWatch(GuardSettings(window_s=100, max_failed_starts=3))
    watch.started(0, [False, False])
    watch.started(50, [False])
    assert watch.verdict(60) == "3 of 3 starts failed within 100 s"
    assert watch.verdict(140) is None
    watch.started(145, [False] * 3 + [True] * 4)
    assert watch.verdict(149) is None
    watch.reset()
    assert watch.verdict(149) is None


def test_one_good_decision_clears_the_bad_ones():
    watch = FailureWatch(GuardSettings(max_failed_decisions=2))
    watch.decided(False)
    watch.decided(True)
    watch.decided(False)
    assert watch.verdict(0) is None
    watch.decided(False)
    assert watch.verdict(0) == "2 decisions in a row failed"


def test_control_needs_every_required_check():
    warning = Check("clocks", False, "2 s apart", "use NTP", required=False)
    require_ready([Check("privilege", True, "operator"), warning])
    with pytest.raises(NotReady, match="privilege: none; add an operator"):
        require_ready([Check("privilege", False, "none", "add an operator"), warning])


def a_watch(**settings):
    return FailureWatch(GuardSettings(**{"window_s": 100, "max_failed_starts": 3, **settings}))


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([False] * 2, None),
        ([False] * 3, "3 of 3 starts failed within 100 s"),
        ([False] * 3 + [True] * 2, "3 of 5 starts failed within 100 s"),
        ([False] * 3 + [True] * 3, None),
        ([False] * 4 + [True] * 4, None),
        ([True] * 50, None),
    ],
)
def test_starts_fail_too_often_if_there_are_enough_of_them_and_most(results, verdict):
    watch = a_watch()
    watch.started(0, results)
    assert watch.verdict(0) == verdict


def test_a_start_counts_to_the_end_of_the_window_and_no_longer():
    watch = a_watch()
    watch.started(10, [False] * 3)
    assert watch.verdict(110) is not None
    assert watch.verdict(111) is None


def test_starts_that_came_true_leave_the_window_without_touching_the_count_of_failures():
    watch = a_watch()
    watch.started(0, [True] * 3)
    watch.started(50, [False] * 3)
    assert watch.verdict(120) == "3 of 3 starts failed within 100 s"
    watch.started(130, [False])
    assert watch.verdict(140) == "4 of 4 starts failed within 100 s"
    assert watch.verdict(155) is None, "one is left, of which too few failed"


def test_no_failure_no_verdict_and_the_first_bad_decision_is_the_first():
    watch = a_watch(max_failed_decisions=1)
    assert watch.verdict(0) is None
    watch.decided(False)
    assert watch.verdict(0) == "1 decisions in a row failed"


def test_after_a_resume_everything_begins_at_nothing():
    watch = a_watch(max_failed_decisions=2)
    watch.started(0, [False] * 3)
    watch.decided(False)
    watch.reset()
    assert watch.verdict(0) is None
    watch.decided(False)
    watch.started(0, [False] * 2)
    assert watch.verdict(0) is None
    watch.started(0, [False])
    assert watch.verdict(0) == "3 of 3 starts failed within 100 s"
    watch.reset()
    watch.decided(False)
    watch.decided(False)
    assert watch.verdict(0) == "2 decisions in a row failed"


def test_the_whole_window_of_one_second_counts():
    watch = a_watch(window_s=1, max_failed_starts=1)
    watch.started(7.0, [False])
    assert watch.verdict(8.0) == "1 of 1 starts failed within 1 s"
    assert watch.verdict(8.5) is None
