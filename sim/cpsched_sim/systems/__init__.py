"""Systems for replays: a reader of system files, and one YAML file per system."""
