"""Dispatchers: the decision which queued jobs start now, and on which nodes."""
