"""Run-time predictors: the expected run time of a job, derived from its user's earlier jobs."""
