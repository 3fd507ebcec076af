"""`stage_in`: take a node's copy of a data set into use, and see that it is filled."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from pipeline.data.info import DatasetInfo, read_dataset_info
from pipeline.stage_in.copier import Copier
from pipeline.stage_in.store import Lease, Store
from slurm_jobs.common.errors import StageError, StageStoppedError
from slurm_jobs.common.stage_config.staging import StagingConfig
from slurm_jobs.common.stop import stop_requested

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)


class Staged:
    """A data set in use on this node. Close it, or use it in a `with`, when nothing is read more.

    While it is open, the node's copy is evicted by nobody.
    """

    def __init__(
        self, info: DatasetInfo, *, lease: Lease | None, copier: Copier | None, reason: str = ""
    ) -> None:
        self._info, self._lease, self._copier, self._reason = info, lease, copier, reason
        self.duration_s = 0.0
        """That `stage_in` took: training waited for it."""

    @property
    def folder(self) -> Path | None:
        """Where the copy lies, its shards in `shards/`, whole or not there yet; None without."""
        return None if self._lease is None else self._lease.folder

    @property
    def num_bytes(self) -> int:
        """Of all shards."""
        return self._info.num_bytes

    @property
    def num_local_bytes(self) -> int:
        """Of the shards that are on the local disk at this moment."""
        if self._lease is None:
            return 0
        try:
            present = self._lease.present()
        except OSError:
            return 0
        return sum(s.num_bytes for s in self._info.shards if present.get(s.name) == s.num_bytes)

    @property
    def copied(self) -> bool:
        """Whether this process copies any shard; of two on a node only one copies the same."""
        copier = self._copier
        return copier is not None and bool(copier.num_to_copy or copier.num_copied)

    @property
    def reason(self) -> str:
        """Why training reads the shared folder, or a part of it, to its end; else empty."""
        return self._reason or ("" if self._copier is None else self._copier.reason)

    def check(self) -> None:
        """Raise the error of a copy in the background.

        Raises:
            StageError: a shard in the shared folder is damaged or cannot be read.
        """
        # Called for every sample. A stop is none of it: training stops by itself, at its next step.
        if self._copier is not None and isinstance(self._copier.failure, StageError):
            raise self._copier.failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for this process's copy in the background; whether it has ended."""
        return self._copier is None or self._copier.wait(timeout_s)

    def close(self) -> None:
        """Stop copying, and let go of the copy."""
        if self._copier is not None:
            self._copier.close()
        if self._lease is not None:
            self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def stage_in(
    dataset_dir: Path, node_local_dir: Path, config: StagingConfig, *, copies: bool = True
) -> Staged:
    """Use the node's copy of a data set, and fill it as `config.mode` says.

    Args:
        dataset_dir: on the shared file system.
        node_local_dir: this user's own folder on this node.
        config: mode, limits, threads.
        copies: whether this process is the one of its job that fills the copy.

    Raises:
        StageError: a shard does not match its checksum, twice, or cannot be read.
        StageStoppedError: asked to stop while copying or waiting.
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
