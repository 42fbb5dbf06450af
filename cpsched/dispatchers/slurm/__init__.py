"""A twin of slurmctld's own scheduler: its parameters, when its passes are due, and the dispatcher."""
