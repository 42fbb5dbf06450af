"""Plots of studies; the only package that imports matplotlib (extra `report`)."""
