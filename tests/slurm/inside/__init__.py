"""Functions that live tests run in the bridge's image, with `Slurm.call`.

Tests import them for their types only. Arguments and results are JSON values.
"""
