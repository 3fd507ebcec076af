"""Trackers (TensorBoard, Weights & Biases, ...) of a training, on rank 0.

They use the classes of `accelerate.tracking`, without an `Accelerator`. A missing package is an
error at the start; later failures are logged once, and training continues without that tracker.
"""

from __future__ import annotations
