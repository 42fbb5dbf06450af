"""Dispatcher `smallest-first`: EASY backfilling whose queue is in order of area instead of arrival."""

import cpsched


class SmallestFirst(cpsched.Dispatcher):
    """Smallest area (processors x estimate) first; the first that must wait keep their earliest starts."""

    def __init__(self, reservations: int = 1) -> None:
        self.reservations = reservations

    def decide(self, snapshot, need="plan"):
        return cpsched.plan(snapshot, order="saf", reservations=self.reservations, need=need)
