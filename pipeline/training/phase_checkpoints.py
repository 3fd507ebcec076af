"""Identity of a phase's checkpoints, and of those of the phases after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.training.checkpoint import (
    Checkpoints,
    Identity,
    LaterPhase,
    TrainingState,
    Work,
)
from pipeline.training.job import Job, versions
from pipeline.training.one_phase import PhaseEnd, PlannedPhase
from pipeline.training.spreading import SpreadModel


def find_checkpoints(
    job: Job,
    planned: Sequence[PlannedPhase],
    made: SpreadModel,
    ends: Sequence[PhaseEnd],
    follows: str,
) -> Checkpoints:
    """Return the checkpoints of the phase that comes after `ends`; `follows` as in `Identity`."""
    each, *later = planned[len(ends) :]
    return Checkpoints(
        root=_root(job, each),
        attempt=job.context.attempt,
        ranks=job.ranks,
        state=TrainingState(
            model=made.spread.bare,
            optimizer=made.spread.optimizer,
            learned=made.learning.so_far[each.phase.number],
            extra={"scaler": made.scaling} if made.scaling.is_on else {},
            device=job.workplace.device,
        ),
        identity=_identity(job, each, made, follows),
        later=[
            LaterPhase(root=_root(job, phase), identity=_identity(job, phase, made, ""))
            for phase in later
        ],
        can_begin=not ends or ends[-1].resumed.is_loaded,
    )


def _root(job: Job, planned: PlannedPhase) -> Path:
    return planned.phase.folder(job.context.output_dir) / "checkpoints"


def _identity(job: Job, planned: PlannedPhase, made: SpreadModel, follows: str) -> Identity:
    return Identity(
        lasting_config=planned.lasting,
        dataset_fingerprint=planned.dataset.info.fingerprint,
        work=Work(fingerprint=job.context.fingerprint, num_again=job.context.num_again),
        versions=versions(),
        base=made.learning.bases[planned.phase.number],
        follows=follows,
    )
