"""Workloads: readers of files and synthetic generators."""
