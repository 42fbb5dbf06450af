"""Replay a site's recorded weeks under other policies, and compare the schedules.

`accounting_history` reads the accounting data, `whatif_window` cuts the weeks, `whatif_cases` parses the cases,
`whatif_replay` replays them in processes. `schedule_comparison` compares the twin with the real starts, and the cases
with the twin. `whatif_results` and `whatif_report` compute and present the results.
"""
