"""Constraint-programming dispatchers: one file per paper, each a few lines over the parts in the parent package."""
