"""The corpus: what this program promises not to change, recorded from outside.

`make corpus-check` collects every fact again and compares it with `data/facts`; `make corpus` records them. A fact is a
path and a value, one a line. It comes from the command line, the HTTP API or a file on disk, so that names inside the
code may change. `standins` alone knows internals.

- `data/journals` holds state directories of bridges. Later code must read them and decide each round as recorded, so
  `make corpus` keeps those that the present code reads and decides as recorded, and makes only the others again.
- `data/accepted.yaml` lists intended differences, each with its reason. `make corpus` empties it.
"""
