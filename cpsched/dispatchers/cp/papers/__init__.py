"""Constraint-programming dispatchers, one module per paper, built from the parts in the parent package."""
