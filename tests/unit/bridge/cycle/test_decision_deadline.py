import contextlib
import signal
import threading
import time

import pytest
import structlog

from cpsched.jit import compile_progress
from cpsched_bridge.cycle import decision_deadline
from cpsched_bridge.cycle.decision_deadline import call_policy, can_interrupt, run_within
from cpsched_bridge.errors import DecisionTimeout, PolicyFailure
from tests.bridges import a_bridge
from tests.fakes import FakeCluster


def test_what_is_done_in_time_is_passed_on():
    assert run_within(10.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_within(10.0, lambda: 1 // 0)


def test_what_a_policy_raises_is_a_failure_of_the_kind_that_was_asked_for():
    with pytest.raises(PolicyFailure, match=r"^ZeroDivisionError: ") as found:
        call_policy(10.0, lambda: 1 // 0, "learning_failed")
    assert found.value.kind == "learning_failed"


def test_a_stopped_compiler_is_no_failed_decision():
    def compiles():
        raise compile_progress.CompilationCancelled

    with structlog.testing.capture_logs() as log, pytest.raises(compile_progress.CompilationCancelled):
        call_policy(10.0, compiles)
    assert log == []


@pytest.mark.parametrize("wait", [lambda: time.sleep(600), threading.Event().wait, signal.pause])
def test_waits_are_ended(wait):
    with pytest.raises(DecisionTimeout, match=r"no answer within 0\.05 s"):
        run_within(0.05, wait)


def test_what_is_spent_on_compiling_is_not_counted_and_what_follows_is():
    def compile_for(seconds):
        with compile_progress.measure_compilation():
            time.sleep(seconds)
        return 7

    assert run_within(0.1, lambda: compile_for(0.5)) == 7
    with pytest.raises(DecisionTimeout):
        run_within(0.1, lambda: compile_for(0.3) and time.sleep(600))


def test_it_is_told_where_the_code_was():
    def endless():
        while True:
            pass

    with pytest.raises(DecisionTimeout, match=rf"no answer within 0\.05 s \({__file__}:\d+, in endless\)"):
        run_within(0.05, endless)


@pytest.mark.parametrize("work", [lambda: None, lambda: time.sleep(600), lambda: 1 // 0])
def test_handler_and_timer_are_afterwards_what_they_were(work):
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, 100.0, 7.0)
    try:
        mine = signal.getsignal(signal.SIGALRM)
        with contextlib.suppress(DecisionTimeout, ZeroDivisionError):
            run_within(0.05, work)
        assert signal.getsignal(signal.SIGALRM) is mine
        left_s, every_s = signal.getitimer(signal.ITIMER_REAL)
        assert 90 < left_s < 100
        assert every_s == 7.0
        assert rung == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


@contextlib.contextmanager
def earlier(left_s, every_s=0.0):
    """Another component's timer; the number of its signals."""
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, left_s, every_s)
    try:
        yield rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


@pytest.mark.parametrize("work", [lambda: None, lambda: time.sleep(600), lambda: 1 // 0])
def test_no_timer_is_left_behind_where_there_was_none(work):
    with contextlib.suppress(DecisionTimeout, ZeroDivisionError):
        run_within(0.05, work)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_timer_that_was_due_meanwhile_rings_afterwards():
    with earlier(0.1) as rung:
        run_within(10.0, lambda: time.sleep(0.3))
        assert signal.getitimer(signal.ITIMER_REAL)[0] < 0.1
        while not rung:
            signal.pause()


def test_the_signal_comes_every_second_to_code_that_catches_it():
    def stubborn():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 1.0
        with contextlib.suppress(BaseException):
            time.sleep(600)
        time.sleep(5)

    with pytest.raises(DecisionTimeout):
        run_within(0.05, stubborn)


@pytest.mark.parametrize(("work", "end"), [(lambda: 1 // 0, ZeroDivisionError), (signal.pause, DecisionTimeout)])
def test_a_signal_that_comes_when_all_is_over_changes_nothing(mocker, work, end):
    """Between the end of the work and that of the timer."""
    stop = signal.setitimer

    def set_and_ring(which, seconds, interval=0.0):
        if not seconds:
            signal.getsignal(signal.SIGALRM)(signal.SIGALRM, None)
        return stop(which, seconds, interval)

    mocker.patch.object(signal, "setitimer", set_and_ring)
    with pytest.raises(end):
        run_within(0.05, work)


def test_a_second_signal_while_the_first_is_answered_changes_nothing(mocker):
    def ring_and_tell(words):
        signal.getsignal(signal.SIGALRM)(signal.SIGALRM, None)
        return DecisionTimeout(words)

    mocker.patch.object(decision_deadline, "DecisionTimeout", ring_and_tell)
    with pytest.raises(DecisionTimeout):
        run_within(0.05, signal.pause)


def test_outside_of_the_main_thread_there_is_no_limit():
    found = []

    def work():
        found.append(can_interrupt())
        found.append(run_within(0.01, lambda: time.sleep(0.1)))

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
