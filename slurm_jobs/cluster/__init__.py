"""Facts about the cluster: the profile that a user writes, and the limits that Slurm reports."""
