"""Systems for replays: a reader, and one YAML file per system."""
