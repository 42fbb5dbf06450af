import contextlib
import signal
import threading
import time

import pytest
import structlog

from cpsched_bridge.cycle.deadline import can_interrupt, within
from cpsched_bridge.errors import DecisionTimeout
from tests.bridges import a_bridge
from tests.fakes import FakeCluster


def test_what_is_done_in_time_is_passed_on():
    assert within(10.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(10.0, lambda: 1 // 0)


@pytest.mark.parametrize("wait", [lambda: time.sleep(600), threading.Event().wait, signal.pause])
def test_waits_are_ended(wait):
    with pytest.raises(DecisionTimeout, match=r"no answer within 0\.05 s"):
        within(0.05, wait)


@pytest.mark.parametrize("work", [lambda: None, lambda: time.sleep(600), lambda: 1 // 0])
def test_handler_and_timer_are_afterwards_what_they_were(work):
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, 100.0, 7.0)
    try:
        mine = signal.getsignal(signal.SIGALRM)
        with contextlib.suppress(DecisionTimeout, ZeroDivisionError):
            within(0.05, work)
        assert signal.getsignal(signal.SIGALRM) is mine
        left_s, every_s = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left_s < 100
        assert every_s == 7.0
        assert rung == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def test_outside_of_the_main_thread_there_is_no_limit():
    found = []

    def work():
        found.append(can_interrupt())
        found.append(within(0.01, lambda: time.sleep(0.1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, None]


def test_a_loop_outside_of_the_main_thread_says_that_decisions_have_no_limit(tmp_path):
    def work():
        a_bridge(tmp_path, FakeCluster()).run()

    thread = threading.Thread(target=work)
    with structlog.testing.capture_logs() as lines:
        thread.start()
        thread.join()
    assert "no_decision_deadline" in [line["event"] for line in lines]
