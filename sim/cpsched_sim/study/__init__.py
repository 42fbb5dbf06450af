"""Campaigns: many replays described by one file, each kept under a name made of everything that it depends on."""
