"""The whole state of a training in folders: saved whole or not at all, and restored.

`info` is what a checkpoint says of itself, `files` its folders, `state` what is in it; `saving`
and `restoring` are entered by all ranks; `errors` has why torch could not do it.
"""

from pipeline.training.checkpoint.info import Identity, Work
from pipeline.training.checkpoint.restoring import Restored, restore
from pipeline.training.checkpoint.saving import Saver
from pipeline.training.checkpoint.state import Checkpoints, TrainingState

__all__ = ["Checkpoints", "Identity", "Restored", "Saver", "TrainingState", "Work", "restore"]
