"""Store the bridge's persistent state.

- `ledger`: the jobs that the bridge holds or starts.
- `journal`, `journal_reader`, `round_records`: the recorded rounds; `round_replay` repeats their decisions.
- `process_files`, `state_paths`: the lock, the pause file, and the paths of all files.
"""
