"""`stage_in`: take a node's copy of a data set into use, and fill it."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.disk_format.dataset_info import DatasetInfo, read_dataset_info
from pipeline.stage_in.copier import Copier
from pipeline.stage_in.store import Lease, Store
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.configs.training_parts import StagingConfig

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)


class Staged:
    """Data set in use on this node. Close it, or use it in a `with`, after the last read.

    While it is open, the node's copy is not evicted.
    """

    def __init__(
        self, info: DatasetInfo, *, lease: Lease | None, copier: Copier | None, reason: str = ""
    ) -> None:
        self._info, self._lease, self._copier, self._reason = info, lease, copier, reason
        self.duration_s = 0.0
        """Time of `stage_in`, for which training waited."""

    @property
    def folder(self) -> Path | None:
        """Folder of the copy, with shards in `shards/`, maybe incomplete; None without a copy."""
        return None if self._lease is None else self._lease.folder

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return self._info.num_bytes

    @property
    def num_local_bytes(self) -> int:
        """Bytes of the shards that are on the local disk now."""
        if self._lease is None:
            return 0
        try:
            present = self._lease.present()
        except OSError:
            return 0
        return sum(s.num_bytes for s in self._info.shards if present.get(s.name) == s.num_bytes)

    @property
    def copied(self) -> bool:
        """True if this process copies any shard; of two on a node only one copies the same."""
        copier = self._copier
        return copier is not None and bool(copier.num_to_copy or copier.num_copied)

    @property
    def reason(self) -> str:
        """Reason why training reads from the shared folder, fully or partly; else empty."""
        return self._reason or ("" if self._copier is None else self._copier.reason)

    def check(self) -> None:
        """Raise the error of a background copy.

        Raises:
            StageError: a shard in the shared folder is damaged or cannot be read.
        """
        # Called for every sample. Stops are not raised here: training handles them at its next
        # step.
        if self._copier is not None and isinstance(self._copier.failure, StageError):
            raise self._copier.failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for this process's background copy; return whether it has ended."""
        return self._copier is None or self._copier.wait(timeout_s)

    def close(self) -> None:
        """Stop copying, and release the copy."""
        if self._copier is not None:
            self._copier.close()
        if self._lease is not None:
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def stage_in(
    dataset_dir: Path, node_local_dir: Path, config: StagingConfig, *, copies: bool = True
) -> Staged:
    """Use the node's copy of a data set, and fill it according to `config.mode`.

    Args:
        dataset_dir: On the shared file system.
        node_local_dir: This user's folder on this node.
        config: Mode, limits, threads.
        copies: True if this process is the one of its job that fills the copy.

    Raises:
        StageError: a shard does not match its checksum, twice, or cannot be read.
        StageStoppedError: a stop was requested while copying or waiting.
    """
    started_s = time.perf_counter()
    info = read_dataset_info(dataset_dir)
    if config.mode == "off":
        return Staged(info, lease=None, copier=None, reason="staging.mode is off")
    staged = _take(dataset_dir, Store(root=node_local_dir), info, config, copies=copies)
    staged.duration_s = time.perf_counter() - started_s
    return staged


def _take(
    dataset_dir: Path, store: Store, info: DatasetInfo, config: StagingConfig, *, copies: bool
) -> Staged:
    lease: Lease | None = None
    try:
        with store.locked(_check_stop):
            lease = store.take(info.fingerprint)
        if not copies:
            return Staged(info, lease=lease, copier=None)
        copier = Copier(dataset_dir, store, lease, info, config)
        (copier.run if config.mode == "before" else copier.start)()
    except BaseException as error:
        if lease is not None:
            lease.release()
        if not isinstance(error, OSError):
            raise
        reason = f"{error.filename or store.root}: {error.strerror}"
        log.warning("training reads %s itself: %s", dataset_dir, reason)
        return Staged(info, lease=None, copier=None, reason=reason)
    return Staged(info, lease=lease, copier=copier)


def _check_stop() -> None:
    if stop_requested():
        message = "stopped while the data set was staged in"
        raise StageStoppedError(message)
