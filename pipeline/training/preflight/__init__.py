"""What can be told in a job's first seconds, before anything is staged in or read.

Whether this PyTorch has code for the card, whether all ranks are alike, which attention runs,
whether quantised weights survive as they are stored, and whether the training fits in memory: each
would end the training later, or make it slow or wrong without a word. `device_facts` reads the
device, the rules beside it are pure, and `course` has all ranks agree.
"""

from pipeline.training.preflight.course import PREFLIGHT_NAME, preflight

__all__ = ["PREFLIGHT_NAME", "preflight"]
