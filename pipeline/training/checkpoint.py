"""Saving and restoring the whole state of training; collectives, entered by all ranks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful

from pipeline.training import checkpoint_files as files
from pipeline.training.checkpoint_errors import TellingWriter, explain
from pipeline.training.fingerprint import describe_changes, fingerprint
from pipeline.training.ranks import Ranks
from slurm_jobs.common.errors import StageConfigError, StageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """Where training goes on."""

    step: int
    """Optimizer steps completed; 0 without a checkpoint."""
    loss: float | None
    """Of the last of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unfit:
    """Why a checkpoint is not gone on from."""

    reason: str
    is_other_work: bool = False
    """It is sound, and of the work that the stage had before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpointer:
    """Saves into and restores from one folder of checkpoints."""

    root: Path
    attempt: int
    keep_last: int
    ranks: Ranks
    model: nn.Module
    optimizer: torch.optim.Optimizer
    lasting_config: Mapping[str, Any]
    dataset_fingerprint: str
    work: files.Work
    """Of this attempt's stage."""
    versions: Mapping[str, str]
    extra: Mapping[str, Stateful] = field(default_factory=dict)
    """More state by name, equal on all ranks; restored where a checkpoint has it."""

    @property
    def training(self) -> str:
        """Equal for attempts that may go on from each other's checkpoints."""
        return fingerprint({"config": self.lasting_config, "data": self.dataset_fingerprint})

    def save(self, step: int, loss: float) -> None:
        """Write the state after `step` steps; it gets its name when every rank's part is safe.

        Raises:
            StageError: the file system failed (a full disk, a quota); nothing of it stays.
        """
        temp_dir = files.temp_checkpoint_dir(self.root, step, self.attempt)
        with self._saving(files.checkpoint_dir(self.root, step), temp_dir):
            if self.ranks.rank == 0:
                temp_dir.mkdir(parents=True)
            self.ranks.barrier()
            writer = TellingWriter(temp_dir, single_file_per_rank=True)
            dcp.save(self._state(), storage_writer=writer)
            mine = {p.name: files.hash_file(p) for p in temp_dir.glob(f"__{self.ranks.rank}_*")}
            parts = self.ranks.gather(mine)
            if self.ranks.rank == 0:
                merged = {name: facts for part in parts for name, facts in part.items()}
                info = self._publish(temp_dir, step, loss, merged)
        if self.ranks.rank == 0:
            files.keep_newest(self.root, self.keep_last, info)
        self.ranks.barrier()

    @contextmanager
    def _saving(self, folder: Path, temp_dir: Path) -> Iterator[None]:
        """Say which checkpoint could not be saved and why, and leave room for saying it."""
        try:
            yield
        except (CheckpointException, OSError) as error:
            if self.ranks.rank == 0:  # dcp's errors come when all ranks have ended writing
                with suppress(OSError):
                    files.remove_folder(temp_dir)
            message = (
                f"checkpoint {folder} cannot be saved: {explain(error)}; those before it stay, and "
                "another attempt goes on from the newest"
            )
            raise StageError(message) from error

    def restore(self) -> Restored:
        """Load the newest checkpoint that is readable.

        Where a resume has given the stage other work, which it tells, the checkpoints of the work
        before are set aside, and training begins at step 0.

        Raises:
            StageConfigError: config or data set have changed beneath the same work.
            StageError: the file system failed, or a sound checkpoint cannot be loaded; it stays.
        """
        if self.ranks.rank == 0:
            self.root.mkdir(parents=True, exist_ok=True)
            files.remove_leftovers(self.root)
        candidates = self.ranks.from_main(files.list_checkpoints(self.root))
        for _, folder in candidates:
            found = self._try_restore(folder)
            if isinstance(found, Restored):
                return found
            if self.ranks.rank == 0:
                self._set_aside(folder, found)
            self.ranks.barrier()
        if candidates and self.ranks.rank == 0:
            log.warning("no checkpoint to go on from in %s: training starts at step 0", self.root)
        return Restored(step=0, loss=None)

    def _set_aside(self, folder: Path, unfit: _Unfit) -> None:
        if unfit.is_other_work:
            aside = files.set_other_work_aside(folder, self.attempt)
            where = f"kept as {aside}" if aside else "another writer took it away"
            log.warning("checkpoint %s is of other work (%s); %s", folder, unfit.reason, where)
            return
        unreadable = files.set_aside(folder, self.attempt)
        log.warning(
            "checkpoint %s is unreadable (%s); %s, trying the one before",
            folder,
            unfit.reason,
            f"kept as {unreadable.name}" if unreadable else "another writer took it away",
        )

    def _publish(
        self, temp_dir: Path, step: int, loss: float, parts: dict[str, files.FileFacts]
    ) -> files.CheckpointInfo:
        info = files.CheckpointInfo(
            step=step,
            loss=loss,
            num_ranks=self.ranks.num_ranks,
            config_fingerprint=fingerprint(self.lasting_config),
            config=self.lasting_config,
            dataset_fingerprint=self.dataset_fingerprint,
            work=self.work,
            files={**parts, ".metadata": files.hash_file(temp_dir / ".metadata")},
            versions=self.versions,
        )
        files.write_info(temp_dir, info)
        files.publish_checkpoint(
            temp_dir, files.checkpoint_dir(self.root, step), info, self.attempt
        )
        return info

    def _try_restore(self, folder: Path) -> Restored | _Unfit:
        """Load `folder`; or what is wrong with it, the same on every rank."""
        info, problem = self.ranks.from_main(_read_info(folder) if self.ranks.rank == 0 else None)
        if problem:
            return _Unfit(reason=problem)
        if reason := self._describe_other_work(folder, info):
            return _Unfit(reason=reason, is_other_work=True)
        mine = files.share_of_files(info.files, self.ranks.rank, self.ranks.num_ranks)
        found = self.ranks.from_main(self.ranks.gather(files.damaged_files(folder, mine)))
        if damaged := [line for lines in found for line in lines]:
            return _Unfit(reason="; ".join(damaged))
        state = self._load(folder, with_rng=info.num_ranks == self.ranks.num_ranks)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        _set_rng_state(state.get("rng", {}))
        return Restored(step=info.step, loss=info.loss)

    def _load(self, folder: Path, *, with_rng: bool) -> dict[str, Any]:
        """The state in a checkpoint whose checksums all match: what fails now is not its fault.

        Raises:
            StageError: it cannot be loaded, on every rank if one of them failed.
        """
        state = self._state()
        rng = state.pop("rng")
        try:
            stored = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
            # One that was written without a GPU has no GPU's generator, whatever this node has.
            known = {name: value for name, value in rng.items() if f"rng.{name}" in stored}
            if with_rng and known:
                state["rng"] = known
            for name in self.extra:  # another precision before may have had none
                if not any(key.startswith(f"{name}.") for key in stored):
                    del state[name]
            dcp.load(state, checkpoint_id=folder)
        except (CheckpointException, OSError) as error:
            message = (
                f"checkpoint {folder} cannot be loaded, though all its checksums match: "
                f"{explain(error)}; it stays as it is"
            )
            raise StageError(message) from error
        return state

    def _describe_other_work(self, folder: Path, info: files.CheckpointInfo) -> str:
        """Why the checkpoint is not to be continued, if so; the same on every rank.

        Raises:
            StageConfigError: it is of the same work, and cannot be continued all the same.
        """
        if info.work.num_again != self.work.num_again:
            return "the stage was asked for again"
        changes = describe_changes(info.config, self.lasting_config)
        if info.dataset_fingerprint != self.dataset_fingerprint:
            changes.append(
                f"data set: {info.dataset_fingerprint} then, {self.dataset_fingerprint} now"
            )
        if changes and info.work.fingerprint == self.work.fingerprint:
            message = (
                f"checkpoint {folder} cannot be continued ({'; '.join(changes)}), though the "
                "stage's spec is the same: submit a new run, or set these back"
            )
            raise StageConfigError(message)
        return "; ".join(changes)

    def _state(self) -> dict[str, Any]:
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        rng = {f"rank-{self.ranks.rank:05d}.{name}": value for name, value in _rng_state().items()}
        return {"model": model_state, "optimizer": optimizer_state, "rng": rng, **self.extra}


def _read_info(folder: Path) -> tuple[files.CheckpointInfo | None, str | None]:
    try:
        return files.read_info(folder), None
    except files.DAMAGE as error:
        return None, f"{files.INFO_NAME}: {error!r}"


def _rng_state() -> dict[str, torch.Tensor]:
    """State of the generators of this rank, uint8 tensors on the host."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_rng_state(states: Mapping[str, torch.Tensor]) -> None:
    for name, value in states.items():
        if name.endswith(".cpu"):
            torch.set_rng_state(value)
        elif torch.cuda.is_available():
            torch.cuda.set_rng_state(value)
