"""Compute-node side of slurm-jobs: the built-in stages.

From `slurm_jobs` this package imports only `slurm_jobs.formats` and `slurm_jobs.base`.
"""
