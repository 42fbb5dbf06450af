"""Plots of studies. Only this package imports matplotlib (extra `report`)."""
