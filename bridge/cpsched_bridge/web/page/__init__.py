"""Serve the status page as HTML and as JSON: pending jobs with reasons, running jobs, and the plan."""
