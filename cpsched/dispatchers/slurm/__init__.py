"""Model slurmctld's scheduler: its parameters, the times of its passes, and the dispatcher."""
