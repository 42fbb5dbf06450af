"""Reads what others wrote: every failure of a file becomes `file:line: field: value: rule`, every size has a bound."""
