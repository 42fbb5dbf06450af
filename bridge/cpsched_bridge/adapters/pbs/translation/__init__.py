"""What PBS's records mean to the bridge: pure, without processes, files and clocks.

- `ids`, `units`: numbers of jobs; sizes, times and durations.
- `machine`: vnodes as nodes, and what is free on them.
- `chunks`: `select` and `place` as a request.
- `queues`, `limits`, `reservations`: what may start, and where.
- `jobs`, `running`: records of jobs that wait, and that have vnodes.
- `observation`: one reading as an `Observation`.
"""
