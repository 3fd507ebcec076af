"""Copier of the missing files of a data set, on several threads, before or during training."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections import deque
from pathlib import Path

from pipeline.data.disk_format.dataset_info import DatasetInfo, ShardInfo
from pipeline.data.disk_format.index import is_sound_index
from pipeline.stage_in.copy_plan import SPARE_BYTES, CopyPlan, plan_copy
from pipeline.stage_in.pace import Pace
from pipeline.stage_in.store import Lease, Store
from pipeline.stage_in.verified_copy import copy_verified, is_intact, unreadable
from slurm_jobs.base.errors import StageError, StageStoppedError
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.configs.training_parts import StagingConfig
from slurm_jobs.formats.dataset_folder import INDEX_NAME, SHARDS_DIR
from slurm_jobs.formats.records.heartbeat import beat

log = logging.getLogger(__name__)


_TURN_POLL_S = 1.0
_CLOSE_PATIENCE_S = 10.0  # a read that hangs with its server must not prevent the end of training


class Copier:
    """Copies the missing files of a data set, on several threads, before or during training.

    Use once: `run`, or `start` and later `close`. On each node only one process at a time fills
    the local copy of a data set; other jobs wait for it, and copy what is still missing. Complete
    shards are kept, however copying ends. An error of the local disk ends copying with a warning;
    one of the shared file system is stored for readers (`failure`).
    """

    def __init__(
        self,
        dataset_dir: Path,
        store: Store,
        lease: Lease,
        info: DatasetInfo,
        config: StagingConfig,
    ) -> None:
        self._source, self._store, self._lease = dataset_dir, store, lease
        self._info, self._config = info, config
        rate = None if config.max_mb_per_s is None else config.max_mb_per_s * 1e6
        self._pace = Pace(store.root / "stage_in.pace", rate)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._to_verify: deque[ShardInfo] = deque()
        """Copied before the node's last boot: verified, and copied again only if damaged."""
        self._to_copy: deque[ShardInfo] = deque()
        self._thread: threading.Thread | None = None
        self.failure: StageError | StageStoppedError | None = None
        """Error that ended the copy, if it was not the local disk's."""
        self._is_planned = self._gave_up = False
        self.reason = ""
        """Reason why shards stay on the shared file system; empty if there is none."""
        self.num_copied = 0
        """Number of shards so far."""
        self.num_to_copy = 0
        """Planned shards."""

    def plan(self) -> bool:
        """Evict, reserve, and copy the index; False while another process copies.

        Raises:
            StageError: the index cannot be read.
            StageStoppedError: a stop was requested meanwhile.
            OSError: of the local disk.
        """
        with self._store.locked(self.check_stop):
            if not self._lease.begin_copying():
                return False
            self._lease.clean()
            has_index = self._has_index()
            if not has_index:  # no reader may find a damaged one if it cannot be replaced
                (self._lease.folder / INDEX_NAME).unlink(missing_ok=True)
            plan = self._plan_shards(has_index=has_index)
        if not has_index:
            self._copy_index()
        self.num_to_copy = len(plan.copied)
        self._to_copy.extend(plan.copied)
        if plan.left_out:
            num_bytes = plan.num_bytes + sum(shard.num_bytes for shard in plan.left_out)
            self.reason = (
                f"{self._lease.folder}: room for {max(0, plan.room_bytes)} bytes, {num_bytes} "
                f"needed: {len(plan.left_out)} of {self._info.num_shards} shards do not fit"
            )
            log.warning("training reads a part of %s itself: %s", self._source, self.reason)
        self._is_planned = True
        return True

    def run(self) -> None:
        """Copy, after any other process that copies, and return when all is done.

        Raises:
            StageError: a shard does not match its checksum, twice, or cannot be read.
            StageStoppedError: a stop was requested meanwhile.
        """
        try:
            seen: object = None
            while not self._is_planned and not self.plan():
                self.check_stop()
                progress = self._lease.progress()
                if progress != seen:
                    self._beat()  # another process's copy may take an hour
                seen = progress
                self._closed.wait(_TURN_POLL_S)
            self._work()
        except OSError as error:
            self._give_up(error)
        finally:
            self._lease.end_copying()
        if self.failure is not None:
            raise self.failure

    def start(self) -> None:
        """Plan, if no other process copies, and do the rest of `run` in the background.

        Raises:
            StageError, StageStoppedError: as in `plan`; later errors are stored in `failure`.
        """
        try:
            self.plan()
        except OSError as error:
            self._give_up(error)
            self._lease.end_copying()  # this process does not copy, so another may
            return
        self._thread = threading.Thread(
            target=self._run_in_background, name="stage-in", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for what `start` began; return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Stop copying immediately; a partial shard is removed, complete ones are kept."""
        self._closed.set()
        if not self.wait(_CLOSE_PATIENCE_S):
            log.warning("staging in hangs in a read of %s, and is abandoned", self._source)

    def check_stop(self) -> None:
        """Raise StageStoppedError once copying has become useless."""
        if self._closed.is_set() or self.failure is not None or stop_requested():
            message = "stopped while the data set was staged in"
            raise StageStoppedError(message)

    def _has_index(self) -> bool:
        info = self._info
        file = self._lease.folder / INDEX_NAME
        return is_sound_index(file, info.index, num_samples=info.num_samples)

    def _index_bytes(self) -> int:
        source = self._source / INDEX_NAME
        try:
            return source.stat().st_size
        except OSError as error:
            raise unreadable(source, error) from error

    def _copy_index(self) -> None:
        """Copy the index before any shard; a damaged one is left to its readers."""
        target = self._lease.folder / INDEX_NAME
        self._copy(self._source / INDEX_NAME, target, None)
        if not self._has_index():
            target.unlink()

    def _plan_shards(self, *, has_index: bool) -> CopyPlan:
        lease, present = self._lease, self._lease.present()
        here: list[ShardInfo] = []
        missing: list[ShardInfo] = []
        for shard in self._info.shards:
            if present.get(shard.name) == shard.num_bytes:
                here.append(shard)
            else:
                missing.append(shard)
        if not here:
            lease.note_boot()
        elif not lease.of_this_boot():
            self._to_verify.extend(here)
        for shard in missing:
            (lease.folder / SHARDS_DIR / shard.name).unlink(missing_ok=True)  # of a wrong size
        others = self._store.others(lease.folder.name)
        cap_bytes = None if self._config.max_gb is None else int(self._config.max_gb * 1e9)
        kept_bytes = 0 if has_index else self._index_bytes()
        room = self._store.room(lease.folder.name, cap_bytes, others, kept_bytes=kept_bytes)
        plan = plan_copy(missing, room, others)
        for fingerprint in plan.evicted:
            log.info("staging in: the copy of data set %s makes room", fingerprint)
            self._store.evict(fingerprint)
        lease.reserve(room.present_bytes + plan.num_bytes)
        return plan

    def _run_in_background(self) -> None:
        start_s = time.perf_counter()
        try:
            self.run()
        except StageStoppedError:
            log.info("staging in stopped: %d shards copied", self.num_copied)
        except StageError as error:
            with self._lock:
                self.failure = self.failure or error  # `run` also raises what it finds as it plans
            log.error("staging in failed: %s", error)  # noqa: TRY400 - raised where it is read, too
        else:
            duration_s = time.perf_counter() - start_s
            log.info("staged in: %d shards copied in %.0f s", self.num_copied, duration_s)

    def _work(self) -> None:
        """Verify and copy on daemon threads, which never outlive the process."""
        verifies = bool(self._to_verify)
        num_threads = min(self._config.num_threads, len(self._to_verify) + len(self._to_copy))
        threads = [
            threading.Thread(target=self._work_on_shards, name=f"stage-in-{index}", daemon=True)
            for index in range(num_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if verifies and not self._gave_up and self.failure is None:
            self._lease.note_boot()

    def _work_on_shards(self) -> None:
        try:
            while True:
                with self._lock:
                    is_here = bool(self._to_verify)
                    shards = self._to_verify or self._to_copy
                    if not shards:
                        return
                    shard = shards.popleft()
                self._stage(shard, is_here=is_here)
        except (StageError, StageStoppedError) as error:
            with self._lock:  # report the first error: the others stop because of it
                self.failure = self.failure or error
        except OSError as error:
            self._give_up(error)

    def _stage(self, shard: ShardInfo, *, is_here: bool) -> None:
        target = self._lease.folder / SHARDS_DIR / shard.name
        if is_here:
            matches = is_intact(
                target, xxh3=shard.xxh3, check_stop=self.check_stop, note_block=self._beat
            )
            self._lease.note_progress()
            if matches:
                return
            target.unlink(missing_ok=True)
        if shutil.disk_usage(target.parent).free < shard.num_bytes + SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        self._copy(self._source / SHARDS_DIR / shard.name, target, shard.xxh3)
        with self._lock:
            self.num_copied += 1

    def _beat(self) -> None:
        """Show progress if training waits: a background copy is not training's progress."""
        if self._thread is None:
            beat()

    def _copy(self, source: Path, target: Path, xxh3: str | None) -> None:
        copy_verified(
            source,
            target,
            xxh3=xxh3,
            pace=self._pace,
            check_stop=self.check_stop,
            note_block=self._beat,
        )

    def _give_up(self, error: OSError) -> None:
        """Handle a failing local disk: use complete shards, read the rest elsewhere."""
        with self._lock:
            self._to_verify.clear()
            self._to_copy.clear()
            self._gave_up = True
            if not self.reason:
                self.reason = f"{error.filename or self._lease.folder}: {error.strerror}"
        log.warning("training reads the rest of %s itself: %s", self._source, self.reason)
