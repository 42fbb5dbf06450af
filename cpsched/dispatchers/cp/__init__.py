"""Constraint-programming dispatchers, built from shared parts. Only this package imports OR-Tools."""
