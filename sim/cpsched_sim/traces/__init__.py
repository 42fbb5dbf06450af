"""Readers of trace formats, one module per format."""
