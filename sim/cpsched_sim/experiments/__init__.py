"""Run many replays in parallel, store them under keys, and compare them."""
