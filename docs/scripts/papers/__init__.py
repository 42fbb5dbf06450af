"""The papers' studies: what was published beside what the studies of the repository found, as tables and pictures."""
