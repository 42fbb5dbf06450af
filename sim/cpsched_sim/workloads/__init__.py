"""Workloads: file readers and synthetic generators."""
