import contextlib
import signal
import threading
import time

import pytest
import structlog

from cpsched.jit import compile_progress
from cpsched_bridge.cycle import verified_decision
from cpsched_bridge.cycle.verified_decision import call_policy, can_enforce_deadline, run_within_time_limit
from cpsched_bridge.errors import DecisionTimeout, PolicyFailure


def test_returns_result_or_exception_in_time():
    assert run_within_time_limit(10.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_within_time_limit(10.0, lambda: 1 // 0)


def test_policy_exception_has_requested_failure_kind():
    with pytest.raises(PolicyFailure, match=r"^ZeroDivisionError: ") as found:
        call_policy(10.0, lambda: 1 // 0, "learning_failed")
    assert found.value.kind == "learning_failed"


def test_cancelled_compilation_is_no_failed_decision():
    def compiles():
        raise compile_progress.CompilationCancelled

    with structlog.testing.capture_logs() as log, pytest.raises(compile_progress.CompilationCancelled):
        call_policy(10.0, compiles)
    assert log == []


@pytest.mark.parametrize("wait", [lambda: time.sleep(600), threading.Event().wait, signal.pause])
def test_interrupts_wait(wait):
    with pytest.raises(DecisionTimeout, match=r"no decision within 0\.05 s"):
        run_within_time_limit(0.05, wait)


def test_compilation_time_does_not_count():
    def compile_for(seconds):
        with compile_progress.measure_compilation():
            time.sleep(seconds)
        return 7

    assert run_within_time_limit(0.1, lambda: compile_for(0.5)) == 7
    with pytest.raises(DecisionTimeout):
        run_within_time_limit(0.1, lambda: compile_for(0.3) and time.sleep(600))


def test_reports_interrupted_code_position():
    def endless():
        while True:
            pass

    with pytest.raises(DecisionTimeout, match=rf"no decision within 0\.05 s \({__file__}:\d+, in endless\)"):
        run_within_time_limit(0.05, endless)


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
@pytest.mark.parametrize(("left_s", "every_s"), [(100.0, 7.0), (0.0, 0.0)])
def test_restores_handler_and_timer(work, left_s, every_s):
    with earlier(left_s, every_s) as rung:
        mine = signal.getsignal(signal.SIGALRM)
        with contextlib.suppress(DecisionTimeout, ZeroDivisionError):
            run_within_time_limit(0.05, work)
        assert signal.getsignal(signal.SIGALRM) is mine
        assert signal.getitimer(signal.ITIMER_REAL) == (pytest.approx(left_s, abs=10), every_s)
        assert rung == []


def test_restores_earlier_timer_that_was_due():
    with earlier(0.1) as rung:
        run_within_time_limit(10.0, lambda: time.sleep(0.3))
        assert signal.getitimer(signal.ITIMER_REAL)[0] < 0.1
        while not rung:
            signal.pause()


def test_repeats_signal_for_code_that_catches_it():
    def stubborn():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 1.0
        with contextlib.suppress(BaseException):
            time.sleep(600)
        time.sleep(5)

    with pytest.raises(DecisionTimeout):
        run_within_time_limit(0.05, stubborn)


@pytest.mark.parametrize(("work", "end"), [(lambda: 1 // 0, ZeroDivisionError), (signal.pause, DecisionTimeout)])
def test_ignores_signal_after_end_of_work(mocker, work, end):
    """Between the end of the work and that of the timer."""
    stop = signal.setitimer

    def set_and_ring(which, seconds, interval=0.0):
        if not seconds:
            signal.getsignal(signal.SIGALRM)(signal.SIGALRM, None)
        return stop(which, seconds, interval)

    mocker.patch.object(signal, "setitimer", set_and_ring)
    with pytest.raises(end):
        run_within_time_limit(0.05, work)


def test_ignores_second_signal_during_first(mocker):
    def ring_and_tell(words):
        signal.getsignal(signal.SIGALRM)(signal.SIGALRM, None)
        return DecisionTimeout(words)

    mocker.patch.object(verified_decision, "DecisionTimeout", ring_and_tell)
    with pytest.raises(DecisionTimeout):
        run_within_time_limit(0.05, signal.pause)


def test_has_no_limit_outside_main_thread():
    found = []

    def work():
        found.append(can_enforce_deadline())
        found.append(run_within_time_limit(0.01, lambda: time.sleep(0.1)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, None]
