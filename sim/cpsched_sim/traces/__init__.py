"""Traces: readers of the formats that workloads come in, one file per format."""
