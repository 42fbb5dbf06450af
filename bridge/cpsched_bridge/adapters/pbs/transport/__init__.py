"""Run PBS's programs: parse their output into records, and send commands.

- `pbs_programs`: run programs with deadlines.
- `pbs_json`, `text_parsers`: parse output.
- `pbs_reader`: collect one reading.
- `pbs_commands`: start and move a job, open and close a queue, write the claim and boosts.
"""
