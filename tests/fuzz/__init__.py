"""Damaged and hostile files, passed to the real command line: it must raise only the project's own errors, and not
hang.
"""
