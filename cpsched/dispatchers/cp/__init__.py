"""Constraint-programming dispatchers: short recipes over shared parts. Only this package imports OR-Tools."""
