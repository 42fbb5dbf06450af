"""Store the bridge's persistent state.

- `ledger`, `state_tables`: the jobs that the bridge holds, starts, boosts or stops.
- `journal`, `journal_reader`, `round_records`, `round_replay`: the recorded rounds, whose decisions can be repeated.
- `lock_and_request_files`, `state_paths`: the lock, the pause file, and the paths of all files.
"""
