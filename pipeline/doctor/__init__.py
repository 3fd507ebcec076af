"""The nodes' side of `slurm-jobs doctor`: what a node is like, and a drill of stop and requeue.

Needs the standard library alone, as a broken Python must not keep it from telling of that; PyTorch
is asked in a process of its own.
"""
