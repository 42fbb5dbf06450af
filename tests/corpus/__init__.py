"""The corpus: behaviour that must not change, recorded from outside.

`make corpus-check` collects every fact again and compares it with `data/facts`; `make corpus` records them. A fact is a
path and a value, one per line. It comes from the command line, the HTTP API or a file, so that names in the code may
change. Only `standins` uses internals.

- `data/journals` has state directories of bridges. Later code must read them and decide each round as recorded, so
`make corpus` keeps those for which this holds, and records only the others again.
- `data/accepted.yaml` lists intended differences, each with its reason. `make corpus` empties it.
"""
