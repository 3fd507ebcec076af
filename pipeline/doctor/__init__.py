"""Node side of `slurm-jobs doctor`: facts about a node, and a drill of stop and requeue.

Uses only the standard library, so that a broken Python environment can still be reported;
PyTorch runs in a separate process.
"""
