"""Dispatchers of constraint programming: one file per paper, each a few lines over the parts in the folder above."""
