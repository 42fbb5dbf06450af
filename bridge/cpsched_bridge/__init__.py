"""The bridge: a loop that reads a cluster, decides with `cpsched`, and starts and holds jobs.

- Foundation: `ports` (interface to a cluster), `cycle_report` (what one cycle did), `settings`, `errors`.
- Subpackages: `cycle` (the loop), `store` (ledger and journal), `telemetry` (metrics, logs, systemd), `web` (status
  page and API), `adapters` (the clusters), `program` (the command line).
"""

from cpsched.installation_check import check_copies

check_copies(__file__)
