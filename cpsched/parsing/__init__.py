"""Parse PBS requests, sizes and durations, and the times of checkpoints, with pure functions from text to values."""
