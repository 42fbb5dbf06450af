"""Readers of trace formats, one file per format."""
