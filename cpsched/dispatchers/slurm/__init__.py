"""Model slurmctld's scheduler: its parameters, its passes and its decisions."""
