"""Restoring of the newest valid state of this training; a collective of all ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from pipeline.train.checkpoints import checkpoint_folders
from pipeline.train.checkpoints.checkpoint_reading import PlainPlanner, PlainReader
from pipeline.train.checkpoints.checkpoint_record import (
    DAMAGE,
    INFO_NAME,
    CheckpointInfo,
    Identity,
    read_info,
    record_hash,
)
from pipeline.train.checkpoints.lasting_config import describe_changes
from pipeline.train.checkpoints.state_differences import compare
from pipeline.train.checkpoints.torch_failures import explain
from pipeline.train.checkpoints.training_state import Checkpoints, LaterPhase
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageConfigError, StageError

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
        checkpoint_folders.remove_leftovers(root)
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
        (path for _, path in checkpoint_folders.list_checkpoints(root) if path not in lost), None
    )


def _set_aside(folder: Path, unfit: _Unfit, attempt: int) -> bool:
    """Set it aside, with a warning; False if another writer has done so before."""
    gone = "another writer removed it"
    if unfit.is_other_work:
        aside = checkpoint_folders.set_other_work_aside(folder, attempt)
        where = f"kept as {aside}" if aside else gone
        log.warning("checkpoint %s is of other work (%s); %s", folder, unfit.reason, where)
    else:
        aside = checkpoint_folders.set_aside(folder, attempt)
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
    mine = checkpoint_folders.share_of_files(info.files, ranks.rank, ranks.num_ranks)
    by_rank = ranks.from_main(ranks.gather(checkpoint_folders.damaged_files(folder, mine)))
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
            raise StageConfigError(message, resumes=[("--again", "STAGE")])
        dcp.load(places, storage_reader=reader, planner=PlainPlanner())
    except (CheckpointException, OSError) as error:
        message = (
            f"checkpoint {folder} cannot be loaded, though all its checksums match: "
            f"{explain(error)}; it is kept"
        )
        raise StageError(message) from error
    return places
