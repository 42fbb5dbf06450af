"""Readers of external files. Every error is `file:line: field: value: rule`, and every size has a bound."""
