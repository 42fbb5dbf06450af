"""The `cpsched` program: command line, views, assembly of a bridge, the demo."""
