"""Saving the state of a training, completely or not at all: blocking, or in the background.

In the background: the state is copied to the host, the only time that training stalls. A thread
writes the copy, and publishes it when the parts of all ranks are on disk. The threads use a
separate gloo group, so they never interfere with the training's collectives. Their errors are
raised where all ranks check together (`Saver.finish`).

The thread works like `torch.distributed.checkpoint.async_save`, but also writes checksums and
record and renames the folder: these must not wait for the next step.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.train.checkpoints import checkpoint_folders
from pipeline.train.checkpoints.checkpoint_reading import METADATA_NAME
from pipeline.train.checkpoints.checkpoint_record import CheckpointInfo, write_info
from pipeline.train.checkpoints.lasting_config import fingerprint
from pipeline.train.checkpoints.part_writer import PartWriter
from pipeline.train.checkpoints.torch_failures import explain
from pipeline.train.checkpoints.training_state import Checkpoints
from slurm_jobs.base.errors import StageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """Cost of writing one checkpoint on a rank."""

    step: int
    start_unix_s: float
    duration_s: float
    """Until the checkpoint was published; on ranks other than 0 until all parts were on disk."""


class Saver:
    """Saves into one folder of checkpoints, one save at a time.

    Every method but `has_ended_here` and `close` is a collective.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        *,
        keep_last: int,
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        """Start without a running save.

        `group` is a gloo group of all ranks, used for nothing else.
        """
        self._checkpoints = checkpoints
        self._ranks = dataclasses.replace(checkpoints.ranks, host_group=group)
        self._keep_last = keep_last
        self._device = device
        self._stager: StateDictStager | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[Upload] | None = None

    def save(self, step: int, loss: float) -> Upload:
        """Write the state after `step` steps; it is published when every rank's part is safe.

        Raises:
            StageError: the file system failed (a full disk, a quota); nothing of it is kept.
        """
        self.finish()
        state = self._checkpoints.state.collect(self._ranks.rank)
        upload: Future[Upload] = Future()
        try:
            upload.set_result(self._write(state, step, loss))
        except Exception as error:  # noqa: BLE001 - it is raised where all ranks have agreed
            upload.set_exception(error)
        return self._agree(upload)

    def begin(self, step: int, loss: float) -> None:
        """Copy the state after `step` steps and return; a thread does the rest of `save`.

        Waits for the previous save if it is still running, and raises its error.
        """
        self.finish()
        is_gpu = self._device.type == "cuda"
        if self._stager is None or self._thread is None:
            # Copies the state to the host, into memory that it reuses. torch's public
            # `DefaultStager` is this and a thread. In torch 2.11 it frees that memory after each
            # copy, so all of it is pinned again, and it fails at the second copy.
            self._stager = StateDictStager(pin_memory=is_gpu, share_memory=False)
            # The thread must not open a context on CUDA's default GPU, the first one.
            options = (torch.cuda.set_device, (self._device,)) if is_gpu else ()
            self._thread = ThreadPoolExecutor(1, "checkpoint", *options)
        collected = self._checkpoints.state.collect(self._ranks.rank)
        state = self._stager.stage(collected, non_blocking=is_gpu)
        if is_gpu:
            # SYNC: the host waits for the copies, so that no update changes what they read.
            torch.cuda.synchronize(self._device)
        self._under_way = self._thread.submit(self._write, state, step, loss)

    def has_ended_here(self) -> bool:
        """Check whether this rank's thread has finished a save, or failed."""
        return self._under_way is not None and self._under_way.done()

    def finish(self) -> Upload | None:
        """Wait for the running save, if there is one; return its cost here.

        Raises:
            StageError: as in `save`; on every rank, if one of them failed.
        """
        if self._under_way is None:
            return None
        upload, self._under_way = self._under_way, None
        return self._agree(upload)

    def close(self) -> None:
        """Wait for a running save, because a valid state may be needed."""
        if self._under_way is not None and (error := self._under_way.exception()) is not None:
            log.warning("the running save failed, too: %s", error)
        if self._thread is not None:
            self._thread.shutdown()
        if self._stager is not None:
            self._stager.close()

    def _agree(self, upload: Future[Upload]) -> Upload:
        """Raise an error of one rank on every rank."""
        error = upload.exception()
        if error is not None and not isinstance(error, StageError):
            raise error  # unexpected: another rank may be gone
        ranks = self._checkpoints.ranks
        failures = ranks.from_main(ranks.gather(None if error is None else str(error)))
        if error is not None:
            raise error
        if failure := next(filter(None, failures), None):
            raise StageError(failure)
        return upload.result()

    def _write(self, state: Mapping[str, Any], step: int, loss: float) -> Upload:
        """Write a collected state with its checksums and record, then publish it."""
        start_unix_s, start_s = time.time(), time.perf_counter()
        root, ranks, attempt = self._checkpoints.root, self._ranks, self._checkpoints.attempt
        identity = self._checkpoints.identity
        folder = checkpoint_folders.checkpoint_dir(root, step)
        temp_dir = checkpoint_folders.temp_checkpoint_dir(root, step, attempt)
        with self._saving(folder, temp_dir):
            writer = PartWriter(temp_dir, ranks.rank)
            dcp.save(dict(state), storage_writer=writer, process_group=ranks.host_group)
            parts = ranks.gather(writer.parts)
            if ranks.rank == 0:
                merged = {name: facts for part in parts for name, facts in part.items()}
                merged[METADATA_NAME] = checkpoint_folders.hash_file(temp_dir / METADATA_NAME)
                info = CheckpointInfo(
                    step=step,
                    loss=loss,
                    num_ranks=ranks.num_ranks,
                    config_fingerprint=fingerprint(identity.lasting_config),
                    config=identity.lasting_config,
                    dataset_fingerprint=identity.dataset_fingerprint,
                    work=identity.work,
                    files=merged,
                    versions=identity.versions,
                    base=identity.base,
                    follows=identity.follows,
                )
                write_info(temp_dir, info)
                checkpoint_folders.publish_checkpoint(temp_dir, folder, info, attempt)
        if ranks.rank == 0:
            try:
                checkpoint_folders.keep_newest(root, self._keep_last, info)
            except OSError as error:
                message = (
                    f"checkpoints in {root} that are no longer kept cannot be removed: {error}"
                )
                raise StageError(message) from error
        duration_s = time.perf_counter() - start_s
        return Upload(step=step, start_unix_s=start_unix_s, duration_s=duration_s)

    @contextmanager
    def _saving(self, folder: Path, temp_dir: Path) -> Iterator[None]:
        """Name the checkpoint that could not be saved and why; free the space of its files."""
        try:
            yield
        except (CheckpointException, OSError) as error:
            if self._ranks.rank == 0:  # dcp raises when all ranks have finished writing
                with suppress(OSError):
                    checkpoint_folders.remove_folder(temp_dir)
            message = (
                f"checkpoint {folder} cannot be saved: {explain(error)}; earlier ones are kept, "
                "and another attempt continues from the newest"
            )
            raise StageError(message) from error
