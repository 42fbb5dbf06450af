"""The simulated cluster: its state, what happens to it, and the loops that replay a trace on it."""
