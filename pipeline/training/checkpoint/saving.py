"""Saving the state of a training, whole or not at all; a collective, entered by all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.training.checkpoint import files
from pipeline.training.checkpoint.errors import TellingWriter, explain
from pipeline.training.checkpoint.info import CheckpointInfo, FileFacts, write_info
from pipeline.training.checkpoint.state import Checkpoints
from pipeline.training.fingerprint import fingerprint
from slurm_jobs.common.errors import StageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Saver:
    """Saves into one folder of checkpoints."""

    checkpoints: Checkpoints
    keep_last: int

    def save(self, step: int, loss: float) -> None:
        """Write the state after `step` steps; it gets its name when every rank's part is safe.

        Raises:
            StageError: the file system failed (a full disk, a quota); nothing of it stays.
        """
        root, ranks = self.checkpoints.root, self.checkpoints.ranks
        temp_dir = files.temp_checkpoint_dir(root, step, self.checkpoints.attempt)
        with self._saving(files.checkpoint_dir(root, step), temp_dir):
            if ranks.rank == 0:
                temp_dir.mkdir(parents=True)
            ranks.barrier()
            writer = TellingWriter(temp_dir, single_file_per_rank=True)
            dcp.save(self.checkpoints.state.collect(ranks.rank), storage_writer=writer)
            mine = {p.name: files.hash_file(p) for p in temp_dir.glob(f"__{ranks.rank}_*")}
            parts = ranks.gather(mine)
            if ranks.rank == 0:
                merged = {name: facts for part in parts for name, facts in part.items()}
                info = self._publish(temp_dir, step, loss, merged)
        if ranks.rank == 0:
            files.keep_newest(root, self.keep_last, info)
        ranks.barrier()

    @contextmanager
    def _saving(self, folder: Path, temp_dir: Path) -> Iterator[None]:
        """Say which checkpoint could not be saved and why, and leave room for saying it."""
        try:
            yield
        except (CheckpointException, OSError) as error:
            if self.checkpoints.ranks.rank == 0:  # dcp's errors come when all have ended writing
                with suppress(OSError):
                    files.remove_folder(temp_dir)
            message = (
                f"checkpoint {folder} cannot be saved: {explain(error)}; those before it stay, and "
                "another attempt goes on from the newest"
            )
            raise StageError(message) from error

    def _publish(
        self, temp_dir: Path, step: int, loss: float, parts: Mapping[str, FileFacts]
    ) -> CheckpointInfo:
        identity = self.checkpoints.identity
        info = CheckpointInfo(
            step=step,
            loss=loss,
            num_ranks=self.checkpoints.ranks.num_ranks,
            config_fingerprint=fingerprint(identity.lasting_config),
            config=identity.lasting_config,
            dataset_fingerprint=identity.dataset_fingerprint,
            work=identity.work,
            files={**parts, ".metadata": files.hash_file(temp_dir / ".metadata")},
            versions=identity.versions,
        )
        write_info(temp_dir, info)
        final_dir = files.checkpoint_dir(self.checkpoints.root, step)
        files.publish_checkpoint(temp_dir, final_dir, info, self.checkpoints.attempt)
        return info
