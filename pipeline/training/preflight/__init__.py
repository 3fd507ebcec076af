"""Checks in a job's first seconds, before anything is staged in or read.

They check whether this PyTorch has code for the card, whether all ranks are alike, which
attention runs, whether quantised weights survive storage, and whether the training fits in
memory. Each problem would otherwise fail the training later, or make it slow or silently wrong.
`device_facts` reads the device, the rules are pure, and `course` makes all ranks agree.
"""

from pipeline.training.preflight.course import PREFLIGHT_NAME, preflight

__all__ = ["PREFLIGHT_NAME", "preflight"]
