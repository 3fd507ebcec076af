"""What the login node and the jobs both read and write: configs, manifests, processors, records.

Standard library only (NumPy to read timings), as `slurm_jobs.base`.
"""
