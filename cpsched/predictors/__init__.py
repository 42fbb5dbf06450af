"""Run-time predictors: the expected run time of a job, from earlier jobs of its user."""
