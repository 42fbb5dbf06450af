"""The signals that end the loop."""

import signal

import pytest

from cpsched.jit import compile_progress
from cpsched_bridge.cycle.loop_clock import LoopClock


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_loop_and_restores_handlers(number: signal.Signals) -> None:
    both = (signal.SIGTERM, signal.SIGINT)
    former = [signal.getsignal(each) for each in both]
    pace = LoopClock()
    with pace.stop_on_signals():
        assert pace.wait(0.0)
        signal.raise_signal(number)
        assert pace.is_stopped
        assert not pace.wait(60.0)
        assert [signal.getsignal(each) for each in both] == [signal.SIG_DFL, signal.default_int_handler]
        with pytest.raises(compile_progress.CompilationCancelled):
            compile_progress.raise_if_cancelled()
    assert [signal.getsignal(each) for each in both] == former
    compile_progress.raise_if_cancelled()
