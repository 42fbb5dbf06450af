"""Studies: many replays described in one file, stored under their inputs' digests."""
