"""Allocation rules: which nodes a job gets, once it is known that it fits."""
