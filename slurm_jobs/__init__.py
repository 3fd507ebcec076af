"""Login node side of slurm-jobs: turn one YAML file into Slurm jobs; plan, submit, resume, report.

It never imports torch or `pipeline`: stages are entry points by name, resolved on the compute node.
"""

__version__ = "0.1.0"
