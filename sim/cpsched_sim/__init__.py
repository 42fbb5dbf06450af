"""Trace replay: an event-driven simulated cluster, workloads, metrics and studies."""
