"""The `cpsched` program: the command line, terminal output, the start-up of a bridge, and the demo."""
