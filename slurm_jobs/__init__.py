"""From one YAML file to dependent Slurm jobs: plan, submit, watch, resume, report.

The login node's side of slurm-jobs. It never imports torch or `pipeline`:
stages are entry points by name, resolved on the compute node.
"""

__version__ = "0.1.0"
