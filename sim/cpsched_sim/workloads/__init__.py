"""Synthetic workloads: one file per kind."""
