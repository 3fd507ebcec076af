"""Attention of a training: its choice for packed rows, its kernels, and a check of varlen."""
