"""What every transport does by Slurm's own programs, and the rules of what may be touched.

- `rules`: whether a job may be touched, judged from a record of it that was read a moment ago.
- `orders`: the commands of a transport over what it can do with one job: look, start, hold, release.
- `arrays`: which record stands for which array task.
- `dialogue`, `scontrol`, `claiming`: changes that scontrol makes; `environment`: that of all programs.
- `layouts`, `privilege`, `unix_groups`: facts that only programs and the host tell.
"""
