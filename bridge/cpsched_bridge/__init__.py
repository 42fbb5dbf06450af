"""The bridge: a loop that reads a cluster, decides with `cpsched`, and starts and holds jobs.

- On the ground: `ports` (what is asked of a cluster), `report` (what one cycle did), `settings`, `errors`.
- Wings: `cycle` (the loop), `store` (ledger and journal), `watch` (metrics, logs, systemd), `adapters` (the clusters),
  `program` (the command line).
"""

from cpsched.copies import check_copies

check_copies(__file__)
