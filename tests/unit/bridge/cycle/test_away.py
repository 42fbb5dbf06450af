"""When a job that is found released may be one of the dead-man timer's: by good cycles and the last heartbeat."""

import pytest

from cpsched_bridge.cycle.away import AWAY_S, away_since


@pytest.mark.parametrize(
    ("heartbeat_age_s", "was"), [(None, True), (0.0, False), (AWAY_S - 1, False), (AWAY_S, True), (-AWAY_S, True)]
)
def test_a_bridge_that_starts_goes_by_the_heartbeat_of_the_one_before(heartbeat_age_s: float | None, was: bool) -> None:
    assert away_since(1000.0, heartbeat_age_s).was(1000.0) == was


def test_it_lasts_for_a_while_after_the_next_good_cycle() -> None:
    away = away_since(0.0, 0.0)
    away.good(AWAY_S - 1)
    assert not away.was(2 * AWAY_S - 2)
    back_s = 2 * AWAY_S - 1
    assert away.was(back_s)
    away.good(back_s)
    assert away.was(back_s + AWAY_S - 1)
    away.good(back_s + AWAY_S - 1)
    assert not away.was(back_s + AWAY_S)
