"""Run-time predictors, most of which learn from a user's earlier jobs."""
