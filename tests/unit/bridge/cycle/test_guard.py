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
