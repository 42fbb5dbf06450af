"""Damaged and hostile files through the real command line: nothing but the project's own errors, and no hang."""
