"""The simulated cluster: its state, its events, and the loops that replay traces on it."""
