"""State of a training in folders: saved completely or not at all, and restored.

`info` is a checkpoint's record, `files` its folders, `state` its content, and `matching`
compares that with a training. All ranks enter `saving` (with `writer`) and `restoring`; `timed`
is their interface to the loop; `concluding` runs after a training; `errors` explains torch's
errors.
"""

from pipeline.training.checkpoint.concluding import conclude
from pipeline.training.checkpoint.info import Identity, Work
from pipeline.training.checkpoint.restoring import Restored, restore
from pipeline.training.checkpoint.saving import Saver
from pipeline.training.checkpoint.state import Checkpoints, LaterPhase, TrainingState
from pipeline.training.checkpoint.timed import TimedSaver, make_saver

__all__ = [
    "Checkpoints",
    "Identity",
    "LaterPhase",
    "Restored",
    "Saver",
    "TimedSaver",
    "TrainingState",
    "Work",
    "conclude",
    "make_saver",
    "restore",
]
