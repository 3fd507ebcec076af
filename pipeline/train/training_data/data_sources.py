"""Data sets of a training's phases: found, compared, staged in once each, and opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.data.augmentation import check_augmentation
from pipeline.data.dataset import ShardedDataset, open_dataset
from pipeline.data.disk_format.dataset_info import PACKS_DIR, DatasetInfo, read_dataset_info
from pipeline.models.data_fit import check_images
from pipeline.preprocess.processor_folders import hash_folder
from pipeline.stage_in.stage import Staged
from pipeline.train.job import Job
from pipeline.train.phase import Phase
from pipeline.train.training_data.staging import stage_together
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR
from slurm_jobs.formats.processors.processor_files import (
    changed_files,
    changed_processor,
    processor_checksums,
)
from slurm_jobs.formats.records.task_context import TaskContext


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
