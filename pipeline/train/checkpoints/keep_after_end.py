"""Checkpoints that a complete training does not keep: `checkpoint.keep_after_end`."""

from __future__ import annotations

from pathlib import Path

from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.phase import phases_of
from slurm_jobs.formats.configs.train import TrainConfig


def not_kept_after_end(config: TrainConfig, output_dir: Path) -> list[str]:
    """Return the folders of those checkpoints, relative to `output_dir`.

    The supervisor removes them once the completion record is written. Each phase keeps its own,
    because an attempt goes through all phases.
    """
    keep = config.checkpoint.keep_after_end
    if keep is None:
        return []
    folders = []
    for phase in phases_of(config):
        newest_first = list_checkpoints(phase.folder(output_dir) / "checkpoints")
        folders += [str(folder.relative_to(output_dir)) for _, folder in newest_first[keep:]]
    return folders
