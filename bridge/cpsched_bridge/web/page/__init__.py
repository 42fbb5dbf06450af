"""Serve the status page as HTML and as JSON."""
