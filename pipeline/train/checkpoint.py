"""Checkpoints saved and restored by all ranks, on a schedule."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.timing.span_log import SpanLog
from pipeline.train import checkpoint_files
from pipeline.train.checkpoint_files import (
    DAMAGE,
    INFO_NAME,
    CheckpointInfo,
    Identity,
    PartWriter,
    describe_changes,
    fingerprint,
    read_info,
    record_hash,
    write_info,
)
from pipeline.train.checkpoint_reading import METADATA_NAME, PlainPlanner, PlainReader
from pipeline.train.checkpoint_state import Checkpoints, LaterPhase, compare, explain
from pipeline.train.ranks import Ranks, new_host_group
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.processes.stop_requests import note_stop_time
from slurm_jobs.shared.records.task_context import TaskContext

if TYPE_CHECKING:
    from typing_extensions import Self


# Last checkpoint of a phase, from which the next phase continues.


def conclude(checkpoints: Checkpoints, step: int) -> str:
    """Remove all checkpoints but that after `step`; return its `record_hash` on every rank.

    A collective.

    Raises:
        StageError: on every rank: it cannot be read, or the others cannot be removed.
    """
    problem, stored = "", ""
    if checkpoints.ranks.rank == 0:
        folder = checkpoint_files.checkpoint_dir(checkpoints.root, step)
        try:
            info = read_info(folder)
            stored = record_hash(info)
            checkpoint_files.keep_newest(checkpoints.root, 1, info)
        except (*DAMAGE, OSError, StageError) as error:
            problem = f"checkpoint {folder}, which the next phase follows: {error}"
    problem, stored = checkpoints.ranks.from_main((problem, stored))
    if problem:
        raise StageError(problem)
    return stored


# Restoring of the newest valid state of this training; a collective of all ranks.


log = logging.getLogger(__name__)

_MOST_LOST = 10
"""Limit of checkpoints that another writer removes while they are read, before the attempt
fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """Position from which training continues."""

    step: int
    """Optimizer steps completed; 0 without a checkpoint."""
    loss: float | None
    """Loss of the last step."""
    is_loaded: bool = True
    """False if a completed phase was skipped, because a later one has its weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unfit:
    """Reason why a checkpoint cannot be continued."""

    reason: str
    is_other_work: bool = False
    """It is valid, but of the stage's previous work."""


def restore(checkpoints: Checkpoints) -> Restored:
    """Load the newest readable checkpoint.

    If a resume has given the stage other work, the checkpoints of the previous work are set
    aside, and training starts at step 0.

    Raises:
        StageConfigError: config, data set or model have changed without new work.
        StageError: the file system failed, or a valid checkpoint cannot be loaded; it stays.
    """
    root, ranks = checkpoints.root, checkpoints.ranks
    if ranks.rank == 0:
        root.mkdir(parents=True, exist_ok=True)
        checkpoint_files.remove_leftovers(root)
    was_tried = False
    lost: list[Path] = []
    while folder := ranks.from_main(_newest(root, lost) if ranks.rank == 0 else None):
        was_tried = True
        restored = _try_restore(checkpoints, folder)
        if isinstance(restored, Restored):
            return restored
        aside = ranks.rank == 0 and _set_aside(folder, restored, checkpoints.attempt)
        if not ranks.from_main(aside):
            lost.append(folder)
        _check_lost(len(lost), root)
    if not checkpoints.can_begin:
        message = (
            f"the checkpoints in {root} were valid when this attempt started and are damaged now, "
            "so the phase before was not loaded; the next attempt starts from that phase"
        )
        raise StageError(message)
    if was_tried and ranks.rank == 0:
        log.warning("no valid checkpoint in %s: training starts at step 0", root)
    return Restored(step=0, loss=None)


def _check_lost(num_lost: int, root: Path) -> None:
    """Give up if another writer removes every checkpoint that is read; the same on every rank."""
    if num_lost > _MOST_LOST:
        message = (
            f"{num_lost} checkpoints in {root} were removed by another writer while they were "
            "read: an earlier attempt still saves there; another attempt tries again"
        )
        raise StageError(message)


def _newest(root: Path, lost: Sequence[Path]) -> Path | None:
    """Return the newest checkpoint that is not in `lost`, by a new listing of the folder.

    An earlier attempt may still publish and remove some, and a network file system may list those
    in `lost` for a while.
    """
    return next(
        (path for _, path in checkpoint_files.list_checkpoints(root) if path not in lost), None
    )


def _set_aside(folder: Path, unfit: _Unfit, attempt: int) -> bool:
    """Set it aside, with a warning; False if another writer has done so before."""
    gone = "another writer removed it"
    if unfit.is_other_work:
        aside = checkpoint_files.set_other_work_aside(folder, attempt)
        where = f"kept as {aside}" if aside else gone
        log.warning("checkpoint %s is of other work (%s); %s", folder, unfit.reason, where)
    else:
        aside = checkpoint_files.set_aside(folder, attempt)
        where = f"kept as {aside.name}" if aside else gone
        log.warning(
            "checkpoint %s is unreadable (%s); %s, trying the newest that is left",
            folder, unfit.reason, where,
        )  # fmt: skip
    return aside is not None


def _try_restore(checkpoints: Checkpoints, folder: Path) -> Restored | _Unfit:
    """Load `folder`; or return what is wrong with it, the same on every rank."""
    info, unfit = _check(checkpoints.ranks, folder, checkpoints.identity)
    if unfit is None:
        assert info is not None
        checkpoints.state.put_back(_load(checkpoints, folder, info))
        return Restored(step=info.step, loss=info.loss)
    if unfit.is_other_work or info is None:
        return unfit
    follower = _find_follower(checkpoints.ranks, info, checkpoints.later)
    if follower is None:
        return unfit
    if checkpoints.ranks.rank == 0:
        log.warning(
            "checkpoint %s is unreadable (%s); its phase is completed, and %s, which follows "
            "it, has all its weights: it is kept, but not loaded",
            folder,
            unfit.reason,
            follower,
        )
    return Restored(step=info.step, loss=info.loss, is_loaded=False)


def _check(
    ranks: Ranks, folder: Path, identity: Identity
) -> tuple[CheckpointInfo | None, _Unfit | None]:
    """Return the record of `folder` if readable, and why it cannot be continued, if so."""
    info, problem = None, ""
    if ranks.rank == 0:
        try:
            info = read_info(folder)
        except DAMAGE as error:
            problem = f"{INFO_NAME}: {error!r}"
    info, problem = ranks.from_main((info, problem))
    if problem:
        return None, _Unfit(reason=problem)
    if reason := _describe_other_work(folder, info, identity):
        return info, _Unfit(reason=reason, is_other_work=True)
    mine = checkpoint_files.share_of_files(info.files, ranks.rank, ranks.num_ranks)
    by_rank = ranks.from_main(ranks.gather(checkpoint_files.damaged_files(folder, mine)))
    if damaged := [line for lines in by_rank for line in lines]:
        return info, _Unfit(reason="; ".join(damaged))
    return info, None


def _find_follower(ranks: Ranks, ended: CheckpointInfo, later: Sequence[LaterPhase]) -> Path | None:
    """Return a valid checkpoint of the phases after the one that `ended` with this record.

    Only the record is compared: if it is intact, it determines the work that a later phase has
    followed, even if its weights are damaged. The folder is listed again for each try, as in
    `restore`.
    """
    if not later:
        return None
    phase, identity = later[0], replace(later[0].identity, follows=record_hash(ended))
    seen: list[Path] = []
    num_lost = 0
    while folder := ranks.from_main(_newest(phase.root, seen) if ranks.rank == 0 else None):
        seen.append(folder)
        info, unfit = _check(ranks, folder, identity)
        if unfit is None:
            return folder
        if (
            info is not None
            and not unfit.is_other_work
            and (follower := _find_follower(ranks, info, later[1:]))
        ):
            return follower
        num_lost += not ranks.from_main(ranks.rank != 0 or folder.exists())
        _check_lost(num_lost, phase.root)
    return None


def _describe_other_work(folder: Path, info: CheckpointInfo, now: Identity) -> str:
    """Return why the checkpoint belongs to other work, empty if it does not; equal on all ranks.

    Raises:
        StageConfigError: it is of the same work, but still cannot be continued.
    """
    if info.work.num_again != now.work.num_again:
        return "a resume ran the stage --again"
    changes = describe_changes(info.config, now.lasting_config)
    if info.dataset_fingerprint != now.dataset_fingerprint:
        changes.append(f"data set: {info.dataset_fingerprint} then, {now.dataset_fingerprint} now")
    if info.base != now.base:
        changes.append(f"weights that are not trained: hash {info.base} then, {now.base} now")
    if changes and info.work.fingerprint == now.work.fingerprint:
        message = (
            f"checkpoint {folder} cannot be continued ({'; '.join(changes)}), although the "
            "stage's spec is the same: submit a new run, or undo these changes"
        )
        raise StageConfigError(message)
    if info.follows != now.follows:
        changes.append("the phase before has ended with another checkpoint since")
    return "; ".join(changes)


def _load(checkpoints: Checkpoints, folder: Path, info: CheckpointInfo) -> dict[str, Any]:
    """Load the state from a checkpoint whose checksums match; later errors have other causes.

    Raises:
        StageConfigError: model or optimizer differ from those that it was written from.
        StageError: it cannot be loaded, on every rank if one of them failed.
    """
    ranks = checkpoints.ranks
    same_ranks = info.num_ranks == ranks.num_ranks
    try:
        reader = PlainReader(folder)
        stored = reader.read_metadata().state_dict_metadata
        places = checkpoints.state.places(stored, ranks.rank, same_ranks=same_ranks)
        if differences := compare(stored, places):
            written_by = ", ".join(f"{name} {version}" for name, version in info.versions.items())
            message = (
                f"checkpoint {folder} cannot be continued, though config and data are the same "
                f"({differences}); it was written with {written_by}: use these versions, or start "
                "the stage again with `slurm-jobs resume RUN --again STAGE`"
            )
            raise StageConfigError(message)
        dcp.load(places, storage_reader=reader, planner=PlainPlanner())
    except (CheckpointException, OSError) as error:
        message = (
            f"checkpoint {folder} cannot be loaded, though all its checksums match: "
            f"{explain(error)}; it is kept"
        )
        raise StageError(message) from error
    return places


# Saving the state of a training, completely or not at all: blocking, or in the background.
#
# In the background: the state is copied to the host, the only time that training stalls. A thread
# writes the copy, and publishes it when the parts of all ranks are on disk. The threads use a
# separate gloo group, so they never interfere with the training's collectives. Their errors are
# raised where all ranks check together (`Saver.finish`).
#
# The thread works like `torch.distributed.checkpoint.async_save`, but also writes checksums and
# record and renames the folder: these must not wait for the next step.


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
        folder = checkpoint_files.checkpoint_dir(root, step)
        temp_dir = checkpoint_files.temp_checkpoint_dir(root, step, attempt)
        with self._saving(folder, temp_dir):
            writer = PartWriter(temp_dir, ranks.rank)
            dcp.save(dict(state), storage_writer=writer, process_group=ranks.host_group)
            parts = ranks.gather(writer.parts)
            if ranks.rank == 0:
                merged = {name: facts for part in parts for name, facts in part.items()}
                merged[METADATA_NAME] = checkpoint_files.hash_file(temp_dir / METADATA_NAME)
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
                checkpoint_files.publish_checkpoint(temp_dir, folder, info, attempt)
        if ranks.rank == 0:
            try:
                checkpoint_files.keep_newest(root, self._keep_last, info)
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
                    checkpoint_files.remove_folder(temp_dir)
            message = (
                f"checkpoint {folder} cannot be saved: {explain(error)}; earlier ones are kept, "
                "and another attempt continues from the newest"
            )
            raise StageError(message) from error


# Time that this training takes to stop: to finish the current step and to save.


class StopTime:
    """Tracks the longest save so far, and the longest mean step between two saves.

    A stop saves. If a background save is running, the stop waits for it first.
    """

    def __init__(self, start_step: int, begun_s: float) -> None:
        self._step = start_step
        self._ended_s = begun_s
        self._longest_save_s = 0.0
        self._longest_background_s = 0.0
        self._longest_step_s = 0.0

    def after_stall(self, step: int, begun_s: float, ended_s: float) -> None:
        """Record steps that ended with a stall for a save.

        The stall began at `begun_s`, with `step` steps completed; both times are of one steady
        clock.
        """
        num_steps = max(1, step - self._step)
        self._longest_step_s = max(self._longest_step_s, (begun_s - self._ended_s) / num_steps)
        self._step, self._ended_s = step, ended_s

    def after_save(self, save_s: float, *, background_s: float = 0.0) -> float:
        """Return the current estimate of the time to stop, in seconds.

        A save took `save_s` from the request for the state until it was safe; steps continued
        during `background_s` of it.
        """
        self._longest_save_s = max(self._longest_save_s, save_s)
        self._longest_background_s = max(self._longest_background_s, background_s)
        return self._longest_step_s + self._longest_background_s + self._longest_save_s


# Timed saves of one attempt for the loop: blocking or in the background.
#
# The stall of training is the step's `checkpoint_s` and a span `checkpoint`; the background part
# is a span `checkpoint_upload`. Both contribute to the time that a stop takes.


class TimedSaver:
    """Saves, writes spans, and estimates the time to stop; closes when its block ends."""

    def __init__(
        self,
        saver: Saver,
        spans: SpanLog,
        *,
        start_step: int,
        in_background: bool,
        note_stop_time: Callable[[float], None],
    ) -> None:
        """Start without a running save.

        With `in_background` it saves in the background if steps follow. `note_stop_time` is called
        after each save with the seconds that a stop would take.
        """
        self._saver = saver
        self._spans = spans
        self._in_background = in_background
        self._note_stop_time = note_stop_time
        self._stop_time = StopTime(start_step, time.monotonic())
        self._copied_s = 0.0

    def save(self, step: int, loss: float, *, must_end: bool) -> None:
        """Save the state after `step` steps; a collective.

        `must_end`: no step comes after this one, so that the checkpoint must be complete.

        Raises:
            StageError: this save or the one before it failed.
        """
        stall_start_s = time.monotonic()
        with self._spans.span("checkpoint", step=step):
            self.finish()
            begun_s = time.monotonic()
            if self._in_background and not must_end:
                self._saver.begin(step, loss)
                self._copied_s = time.monotonic() - begun_s
            else:
                self._saver.save(step, loss)
        ended_s = time.monotonic()
        self._stop_time.after_stall(step, stall_start_s, ended_s)
        if must_end or not self._in_background:
            self._note_stop_time(self._stop_time.after_save(ended_s - begun_s))

    def has_ended_here(self) -> bool:
        """Check whether this rank's part of a background save has ended."""
        return self._saver.has_ended_here()

    def finish(self) -> None:
        """Wait for the background save, if there is one; a collective.

        Raises:
            StageError: it failed, on any rank.
        """
        upload = self._saver.finish()
        if upload is None:
            return
        self._spans.add(
            "checkpoint_upload",
            start_unix_s=upload.start_unix_s,
            duration_s=upload.duration_s,
            step=upload.step,
        )
        save_s = self._copied_s + upload.duration_s
        self._note_stop_time(self._stop_time.after_save(save_s, background_s=upload.duration_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._saver.close()


def make_saver(
    config: TrainConfig,
    checkpoints: Checkpoints,
    context: TaskContext,
    spans: SpanLog,
    start_step: int,
) -> TimedSaver:
    """Make the config's saver; a collective. Rank 0 reports the time to stop to the supervisor."""
    is_gpu = config.device == "cuda"
    saver = Saver(
        checkpoints,
        keep_last=config.checkpoint.keep_last,
        group=new_host_group(timeout_min=config.collective_timeout_min),
        device=torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu"),
    )

    def note(stop_s: float) -> None:
        if context.rank == 0:
            note_stop_time(context.task_dir, stop_s)

    return TimedSaver(
        saver,
        spans,
        start_step=start_step,
        in_background=config.checkpoint.mode == "async",
        note_stop_time=note,
    )
