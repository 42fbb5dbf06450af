"""Many replays: run side by side, kept under keys, and compared."""
