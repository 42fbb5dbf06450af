"""Studies: many replays that one file describes, each stored under a digest of all its inputs."""
