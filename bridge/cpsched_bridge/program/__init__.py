"""The `cpsched` program: command line, terminal output, bridge start-up, and demo."""
