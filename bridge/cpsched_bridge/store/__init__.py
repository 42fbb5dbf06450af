"""What the bridge must not forget, on disk.

- `ledger`: every job that the bridge holds or is starting.
- `journal`, `journal_reader`, `rounds`: every round, enough to decide it again; `redecide` does that.
- `instance`, `places`: the lock, the word to stand down, and where all of these live.
"""
