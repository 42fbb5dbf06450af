"""The simulated cluster: its state, its events, and the loops that replay a trace on it."""
