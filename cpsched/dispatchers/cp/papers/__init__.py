"""Constraint-programming dispatchers: one file per paper, each a short combination of parts in the parent package."""
