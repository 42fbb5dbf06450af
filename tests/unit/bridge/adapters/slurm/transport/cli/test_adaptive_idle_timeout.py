"""The permitted silence of slurmctld depends on its observed speed."""

import contextlib

import pytest

from cpsched_bridge.adapters.slurm.transport.cli.adaptive_idle_timeout import AdaptiveIdleTimeout
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable


def test_late_reading_extends_next_timeout() -> None:
    patience = AdaptiveIdleTimeout(10.0)
    seen = []
    for _ in range(4):
        with contextlib.suppress(BackendTimeout), patience.track_reading():
            raise BackendTimeout("late")
        seen.append((patience.silence_s, patience.limit_s))
    assert seen == [(20.0, 120.0), (40.0, 240.0), (60.0, 360.0), (60.0, 360.0)]
    for expected in (30.0, 15.0, 10.0, 10.0):
        with patience.track_reading():
            pass
        assert patience.silence_s == expected


def test_other_failures_extend_no_timeout() -> None:
    patience = AdaptiveIdleTimeout(10.0)
    with pytest.raises(BackendUnavailable), patience.track_reading():
        raise BackendUnavailable("not reached")
    assert patience.silence_s == 10.0
