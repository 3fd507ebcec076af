"""Configs, manifests, processors and records, which the login node and the jobs both use.

Standard library only (NumPy to read timings), as `slurm_jobs.base`.
"""
