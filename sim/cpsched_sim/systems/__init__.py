"""Systems for replays: a reader for system files, and one YAML file per system."""
