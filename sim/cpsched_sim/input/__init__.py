"""Readers of external files, all of whose sizes are bounded.

Every error has the form `file:line: field: value: rule`.
"""
