"""Run PBS's programs, parse their output into records, and send commands.

- `pbs_programs` runs programs with deadlines.
- `pbs_output_parsing` parses their output.
- `pbs_reader` collects one reading.
- `pbs_commands` starts and moves jobs, opens and closes queues, and writes the lease and boosts.
"""
