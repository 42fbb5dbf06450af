"""Constraint-programming dispatchers. Only this package imports OR-Tools."""
