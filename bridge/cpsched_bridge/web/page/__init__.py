"""The status page, for people and as JSON: pending jobs with reasons, running jobs, and the plan."""
