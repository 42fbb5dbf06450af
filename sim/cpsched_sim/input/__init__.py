"""Readers of external files. Every error has the form `file:line: field: value: rule`, and every size has a bound."""
