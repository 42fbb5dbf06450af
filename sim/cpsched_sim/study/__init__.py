"""Studies: many replays described in one file, each stored under a digest of all its inputs."""
