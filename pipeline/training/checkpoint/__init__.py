"""The whole state of a training in folders: saved whole or not at all, and restored.

`info` is what a checkpoint says of itself, `files` its folders, `state` what is in it, `matching`
whether that is what a training wants; `saving` (with `writer`) and `restoring` are entered by all
ranks; `timed` is what the loop sees of them; `concluding` is for what follows a training;
`errors` has why torch could not do it.
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
