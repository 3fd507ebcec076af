"""Values that every part of the stage needs on a rank."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipeline.data.augmentation import check_augmentation
from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.disk_format.dataset_info import PACKS_DIR, DatasetInfo, read_dataset_info
from pipeline.models.data_fit import check_images
from pipeline.preprocess.processor_folders import hash_folder
from pipeline.stage_in.stage import Staged
from pipeline.stopping import Answer, Pace, answer_stop, describe_shortage, measure_pace
from pipeline.timing.span_log import SpanLog
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.staging import stage_together
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_phases import as_training
from slurm_jobs.shared.dataset_folder import PROCESSOR_DIR
from slurm_jobs.shared.errors import StageConfigError, StageStoppedError
from slurm_jobs.shared.processes.stop_requests import end_requested, stop_requested
from slurm_jobs.shared.processors.processor_files import (
    changed_files,
    changed_processor,
    processor_checksums,
)
from slurm_jobs.shared.records.heartbeat import beat
from slurm_jobs.shared.records.task_context import TaskContext

# Handling of stop requests after the last step of a training.
#
# The state is saved, but a partial export or evaluation is not kept. The next attempt makes no
# step and has all of its time for them, so an attempt that made steps may stop. If an attempt
# started with all steps made, every attempt of the same length would repeat it. So it finishes
# what fits in the time left, and otherwise raises an error that explains this
# (`pipeline.stopping`).


log = logging.getLogger(__name__)

T = TypeVar("T")

_REMEDY = (
    "raise resources.timeout_min, or lower evaluate.num_samples or evaluate.max_new_tokens; "
    "with either, `slurm-jobs resume RUN --set KEY=VALUE` continues from the last checkpoint"
)


class TimeLimitError(StageConfigError):
    """The time limit is too short; all ranks agreed on that, so no rank waits for another."""


class Ending:
    """Handles stop requests after the last step; all ranks stop together, or none does."""

    def __init__(
        self, ranks: Ranks, context: TaskContext, *, began_unix_s: float, made_steps: bool
    ) -> None:
        self._ranks = ranks
        self._context = context
        self._began_unix_s = began_unix_s
        self._made_steps = made_steps
        self._goes_on = False

    def check(self, unit: str) -> None:
        """Call on every rank before indivisible work, one of `unit`; raises like `between`."""
        num_stops, num_ends = self._ranks.sums([float(stop_requested()), float(end_requested())])
        if num_stops:
            now = time.time()
            pace = self._pace(num_done=0, num_total=1, first_unix_s=now)
            self._heed(pace, unit, must_end=bool(num_ends))

    def between(self, batches: Sequence[Sequence[T]], unit: str) -> Iterator[Sequence[T]]:
        """Yield this rank's batches, each after all ranks agree; every rank must take them all.

        Ranks with fewer batches than others wait for these with their last one.

        Raises:
            StageStoppedError: a rank was asked to stop; the next attempt does all of it.
            TimeLimitError: a rank was asked to stop, and no attempt of this length would
                finish.
        """
        first_unix_s, num_total = time.time(), 0
        for index in itertools.count():
            beat()
            mine = sum(len(batch) for batch in batches[index:])
            num_stops, num_ends, num_left = self._ranks.sums(
                [float(stop_requested()), float(end_requested()), float(mine)]
            )
            if not num_left:
                return
            num_total = num_total or int(num_left)
            if num_stops:
                num_done = num_total - int(num_left)
                pace = self._pace(num_done=num_done, num_total=num_total, first_unix_s=first_unix_s)
                self._heed(pace, unit, must_end=bool(num_ends))
            yield from batches[index : index + 1]

    def _pace(self, *, num_done: int, num_total: int, first_unix_s: float) -> Pace:
        return measure_pace(
            self._context,
            num_done=num_done,
            num_total=num_total,
            started_unix_s=self._began_unix_s,
            first_unix_s=first_unix_s,
        )

    def _heed(self, pace: Pace, unit: str, *, must_end: bool) -> None:
        """Follow rank 0's decision; the clocks of nodes differ."""
        answer, pace = self._ranks.from_main(
            (answer_after_steps(pace, made_steps=self._made_steps, must_end=must_end), pace)
        )
        if answer == "stop":
            message = (
                f"asked to stop after the last step: its state is saved; {pace.num_done} of "
                f"{pace.num_total} {unit} were done, and the next attempt starts them again"
            )
            raise StageStoppedError(message)
        if answer == "give_up":
            raise TimeLimitError(describe_shortage(pace, unit=unit, remedy=_REMEDY))
        if self._ranks.rank == 0 and not self._goes_on:
            log.warning("asked to stop near the time limit; the rest may fit, so it continues")
        self._goes_on = True


def answer_after_steps(pace: Pace, *, made_steps: bool, must_end: bool) -> Answer:
    """Decide about a stop request when all steps are made, from the pace of the remaining work.

    `made_steps`: this attempt made steps, so the next one has more time for the rest.
    """
    if made_steps and (pace.left_s is None or pace.needed_s > pace.left_s):
        return "stop"
    return answer_stop(pace, must_end=must_end)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Common context of the stage on a rank."""

    config: TrainConfig
    context: TaskContext
    spans: SpanLog
    rank_device: RankDevice
    ranks: Ranks
    began_unix_s: float
    """Start of this attempt."""


def versions() -> dict[str, str]:
    """Return versions of the libraries that affect results."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


# Phases of a training: consecutive trainings in separate folders.
#
# Each starts with the final weights of the one before, and has its own optimizer, data and
# schedule. A checkpoint of a phase has all that was trained so far, so one is enough to continue
# from. A training without phases is one phase, in the stage's folder.


PHASES_DIR = "phases"


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One phase."""

    number: int
    """From 0."""
    name: str
    """Empty for the only phase, which has no name."""
    config: TrainConfig
    """Config of a single training; without adapters, and quantize, if adapters are not trained."""

    def key(self, name: str) -> str:
        """Return the key of one of the phase's values in the stage's config, for messages."""
        return f"phases.{self.number}.{name}" if self.name else name

    def folder(self, output_dir: Path) -> Path:
        """Return the folder of its checkpoints and choices."""
        if not self.name:
            return output_dir
        return output_dir / PHASES_DIR / f"{self.number}-{self.name}"


def phases_of(config: TrainConfig) -> tuple[Phase, ...]:
    """Return the phases in order; one without a name if the config has none."""
    if not config.phases:
        return (Phase(number=0, name="", config=config),)
    return tuple(
        Phase(number=number, name=phase.name, config=as_training(config, number))
        for number, phase in enumerate(config.phases)
    )


# Data sets of a training's phases: found, compared, staged in once each, and opened.


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Data set in use."""

    folder: Path
    """Folder that `consolidate` wrote."""
    staged: Staged
    dataset: ShardedDataset

    @property
    def processor_dir(self) -> Path:
        """Processor that made it."""
        return self.folder / PROCESSOR_DIR

    @property
    def packs_dir(self) -> Path:
        """Folder of packs for other trainings, if it is writable."""
        return self.folder / PACKS_DIR


def find_dataset(config: TrainConfig, context: TaskContext) -> Path:
    """Return the data set's folder: from the config, else from the `consolidate` stage before.

    Raises:
        StageConfigError: neither exists.
    """
    if config.dataset is not None:
        return Path(config.dataset)
    try:
        return context.parent_running("consolidate").output_dir
    except LookupError as error:
        message = f"{error}; or set config.dataset"
        raise StageConfigError(message) from error


def find_datasets(phases: Sequence[Phase], context: TaskContext) -> list[Path]:
    """Return the data sets of the phases, in order; before anything is copied.

    Raises:
        StageConfigError: one does not exist, the model cannot take its images, they cannot be
            augmented as the config says, it was made by another processor than the first
            phase's, or the files of its processor were changed.
    """
    folders = [find_dataset(phase.config, context) for phase in phases]
    infos = {folder: read_dataset_info(folder) for folder in dict.fromkeys(folders)}
    for folder, info in infos.items():
        _check_processor(folder / PROCESSOR_DIR, info)
    made_by = {folder: info.preprocess["processor_xxh3"] for folder, info in infos.items()}
    for phase, folder in zip(phases, folders, strict=True):
        _check_images(phase, folder, infos[folder])
        check_augmentation(phase.config.augment, infos[folder], phase.key("augment"))
        if made_by[folder] != made_by[folders[0]]:
            message = (
                f"{phase.key('dataset')}: {folder} was made by another processor than "
                f"{folders[0]}, the data set of phase {phases[0].name}: one model trains on "
                "both, so preprocess both with the same"
            )
            raise StageConfigError(message)
    return folders


def _check_processor(folder: Path, info: DatasetInfo) -> None:
    """Compare the files of the processor with the checksums that `consolidate` wrote.

    Raises:
        StageConfigError: a file is missing, or was changed or added.
    """
    digest = hash_folder(folder) if folder.is_dir() else "no folder"
    if digest == info.preprocess["processor_xxh3"]:
        return
    changes = changed_files(info.processor_sha256 or {}, processor_checksums(folder))
    # older versions stored no checksums per file
    if info.processor_sha256 is None or not changes:
        changes = ["files were changed, added or removed"]
    raise StageConfigError(changed_processor(folder, changes))


def _check_images(phase: Phase, folder: Path, info: DatasetInfo) -> None:
    """Run `check_images`; the error names the data set."""
    try:
        check_images(phase.config.model, info)
    except StageConfigError as error:
        message = f"{phase.key('dataset')} ({folder}): {error}"
        raise StageConfigError(message) from error


@contextmanager
def open_sources(folders: Sequence[Path], job: Job) -> Iterator[list[Source]]:
    """Stage in and open, each folder once, in the order of `folders`; closed at the end.

    Raises:
        StageError, StageStoppedError: as in `stage_together`.
    """
    with ExitStack() as stack:
        opened: dict[Path, Source] = {}
        for folder in dict.fromkeys(folders):
            staging = job.config.staging
            staged = stage_together(folder, job.context, staging, job.ranks, job.spans)
            stack.enter_context(staged)
            dataset = open_dataset(folder, staged.folder, staged.check)
            opened[folder] = Source(folder=folder, staged=staged, dataset=dataset)
        yield [opened[folder] for folder in folders]
