"""Checkpoints of a training: what they hold, how they are written, checked and restored."""
