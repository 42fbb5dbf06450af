"""What the bridge keeps on disk: ledger, journal, lock, pause file, heartbeat."""
