"""The `cpsched` program: command line, terminal output, start-up of a bridge, the demo."""
