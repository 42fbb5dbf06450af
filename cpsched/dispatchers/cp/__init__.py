"""Constraint-programming dispatchers: short recipes over shared parts; the one door to OR-Tools."""
