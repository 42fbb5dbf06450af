"""Damaged and hostile files through the real command line: only the project's own errors, and no hang."""
