"""Dispatchers, which decide which queued jobs start now, and on which nodes."""
