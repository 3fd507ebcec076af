"""The compute node's side of slurm-jobs: what the built-in stages do.

From `slurm_jobs` this package imports only `slurm_jobs.common`.
"""
