"""Many replays: run in parallel, stored under keys, and compared."""
