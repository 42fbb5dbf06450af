"""Persistent state of the bridge.

- `ledger`: every job that the bridge holds or starts.
- `journal`, `journal_reader`, `round_records`: every round; `round_replay` repeats its decision.
- `process_files`, `state_paths`: the lock, the pause, and the paths of all files.
"""
