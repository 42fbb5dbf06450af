"""The loop that reads a cluster, decides with `cpsched`, and starts and holds jobs."""
