"""Readers of external files: every error is `file:line: field: value: rule`, and every size has a bound."""
