"""Systems to replay traces on: a reader, and one YAML file per system."""
