from cpsched.model import Starts


def test_starts_keep_placements():
    placements = {3: ((0, 2), (1, 1)), 5: ((2, 4),)}
    assert Starts.of(placements).placements() == placements
