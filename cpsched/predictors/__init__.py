"""Duration predictors: what a job is expected to run, from what its user ran before."""
