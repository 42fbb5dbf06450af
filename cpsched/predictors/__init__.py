"""Run-time predictors: how long a job is expected to run, from the jobs that its user ran before."""
