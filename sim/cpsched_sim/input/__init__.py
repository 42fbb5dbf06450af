"""Readers of foreign files: every failure becomes `file:line: field: value: rule`, every size has a bound."""
