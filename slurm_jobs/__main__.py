"""`python -m slurm_jobs` is the command `slurm-jobs`."""

from slurm_jobs.cli import main

if __name__ == "__main__":
    main()
