"""A real Slurm on one machine: munged, MariaDB, slurmdbd, slurmctld and six slurmd in one folder.

`python -m tests.cluster up|status|shell|run|down` by hand, the `cluster` fixture in tests. Needs
root on Debian or Ubuntu; jobs are submitted by an ordinary user, never by root.
"""
