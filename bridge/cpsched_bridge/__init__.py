"""The bridge: a loop that reads a cluster, decides, and starts and holds jobs.

- Foundation: `ports` (interface to a cluster), `cycle_report` (report of one cycle), `settings`, `errors`.
- Subpackages: `cycle` (the loop), `store` (ledger and journal), `telemetry` (metrics, logs, systemd), `web` (status
  page and API), `adapters` (one per kind of cluster), `program` (the command line).
"""

from cpsched.package_imports import warn_if_installations_differ

warn_if_installations_differ(__file__)
