"""What the cluster offers: the profile that a user writes, and what Slurm says when asked."""
