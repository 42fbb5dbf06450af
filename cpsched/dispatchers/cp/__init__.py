"""Constraint-programming dispatchers: short combinations of shared parts. Only this package imports OR-Tools."""
