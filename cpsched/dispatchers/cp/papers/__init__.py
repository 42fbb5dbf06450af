"""Constraint-programming dispatchers from papers, with one module per paper."""
