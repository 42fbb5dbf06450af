"""The simulated cluster: its state, its events, and the replay loops."""
