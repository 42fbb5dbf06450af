"""Run-time predictors, which derive a job's expected run time from its user's earlier jobs."""
