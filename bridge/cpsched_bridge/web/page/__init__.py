"""The status page: pending jobs with reasons, running jobs, and the plan, for people and as JSON."""
