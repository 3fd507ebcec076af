"""Parts of a preprocess stage: sample counts, and a check that the parts belong together.

Memory holds a few numbers per part, however many samples it has. The rows with the locations of
samples stay in its file; `sample_rows` fetches the ones needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE
from pipeline.preprocess.part import PartIndex, PartPaths, read_part_index
from pipeline.preprocess.rejects import RejectLimit, add_reasons
from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import dump_json
from slurm_jobs.formats.configs.proportions import Proportion
from slurm_jobs.formats.configs.stages import HELD_OUT
from slurm_jobs.formats.manifests.text_rows import TextRow
from slurm_jobs.formats.records import ParentStage
from slurm_jobs.formats.records.task_context import resume_command

_MAX_NAMED = 10
_NUM_THREADS = 16
"""Threads that read small files: on a shared file system each read is a wait, not work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartedManifest:
    """Manifest of all parts, or one of a list of them."""

    name: str
    path: str
    num_rows: int
    num_samples: int
    num_bytes: int
    """Bytes of these samples."""
    proportion: Proportion
    """Config of `preprocess`; that of the first part, because it decides no sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Output of a preprocess stage."""

    parent: ParentStage
    """Stage that made them."""
    paths: tuple[PartPaths, ...]
    first_sample: np.ndarray
    """int64 [num_parts + 1]: part p has samples first_sample[p] to first_sample[p + 1], counted in
    the order of keys over all parts."""
    num_bytes: int
    """Bytes of all samples."""
    manifests: tuple[PartedManifest, ...]
    """In their order; one without a name if there is no list."""
    settings: Mapping[str, Any]
    model_inputs: Mapping[str, Any]
    processor_dir: Path
    num_rejected: int
    rejects_by_reason: Mapping[str, int]
    reject_limit: RejectLimit
    """Limits of `preprocess`; the strictest, if its slices had different ones."""
    text_only: bool
    """Config of `preprocess`; false if that of any slice is."""
    first_text_row: TextRow | None
    """First row without a picture, if no sample of any part has one."""
    identity: str
    """xxh3-128 over the records of all parts: equal for equal parts."""

    @property
    def num_samples(self) -> int:
        """Samples of all parts."""
        return int(self.first_sample[-1])

    @property
    def num_held_out(self) -> int | None:
        """Rows that are evaluated instead of trained on; None without `held_out`."""
        return self.rejects_by_reason.get(HELD_OUT, 0) if "held_out" in self.settings else None

    @property
    def again(self) -> str:
        """Command that makes all of them again."""
        return resume_command(self.parent.run_dir, *self.again_options)

    @property
    def again_options(self) -> tuple[str, ...]:
        """Arguments of this command."""
        return "--again", self.parent.stage

    def too_long_lengths(self) -> list[int]:
        """Return the lengths in tokens of all rows that were left out as too long."""
        lengths = []
        for part in self.paths:
            for line in part.rejects.read_bytes().splitlines():
                num_tokens = json.loads(line).get("num_tokens")
                if num_tokens is not None:
                    lengths.append(num_tokens)
        return lengths

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of each sample, and its row there; `numbers` count over all parts."""
        part = np.searchsorted(self.first_sample, numbers, side="right") - 1
        return part, numbers - self.first_sample[part]


def gather_parts(parent: ParentStage) -> Parts:
    """Read the record of every part of a preprocess stage.

    Raises:
        StageError: a part is missing, damaged, or made with other settings.
    """
    paths = tuple(
        PartPaths(output_dir=parent.output_dir, slice_index=index)
        for index in range(parent.num_slices)
    )
    folder = paths[0].index.parent
    present = set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 - names are enough
    missing = [path.index.name for path in paths if path.index.name not in present]
    if missing:
        rest = len(missing) - _MAX_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        message = (
            f"{folder}: {len(missing)} of {len(paths)} parts are missing: "
            f"{', '.join(missing[:_MAX_NAMED])}{more}; resume the run to preprocess them"
        )
        raise StageError(message)
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="part") as pool:
        indexes = list(pool.map(_read_index, paths))
    _check_same_data(parent, paths, indexes)
    counts = [(i.num_samples, i.samples_xxh3, i.xxh3) for i in indexes]
    words = dump_json([indexes[0].settings, indexes[0].model_inputs, counts])
    num_bytes = sum(index.num_bytes - len(END_OF_ARCHIVE) for index in indexes)
    return Parts(
        parent=parent,
        paths=paths,
        first_sample=np.cumsum([0, *(index.num_samples for index in indexes)], dtype=np.int64),
        num_bytes=num_bytes,
        manifests=_manifests_of(indexes, num_bytes),
        settings=indexes[0].settings,
        model_inputs=indexes[0].model_inputs,
        processor_dir=Path(indexes[0].processor_dir),
        num_rejected=sum(index.num_rejected for index in indexes),
        rejects_by_reason=add_reasons(index.rejects_by_reason for index in indexes),
        reject_limit=RejectLimit(
            max_reject_share=min(index.max_reject_share for index in indexes),
            num_rows=indexes[-1].end_row,
            max_too_long_share=min(index.max_too_long_share for index in indexes),
        ),
        text_only=all(index.text_only for index in indexes),
        first_text_row=_first_text_row(indexes),
        identity=xxhash.xxh3_128_hexdigest(words.encode()),
    )


def _manifests_of(indexes: Sequence[PartIndex], num_bytes: int) -> tuple[PartedManifest, ...]:
    first = indexes[0]
    if first.manifests is None:
        whole = PartedManifest(
            name="",
            path=first.settings["manifest"],
            num_rows=indexes[-1].end_row,
            num_samples=sum(index.num_samples for index in indexes),
            num_bytes=num_bytes,
            proportion=Proportion(),
        )
        return (whole,)
    manifests = []
    for place, (entry, settings) in enumerate(
        zip(first.manifests, first.settings["manifests"], strict=True)
    ):
        of_parts = [index.manifests[place] for index in indexes if index.manifests is not None]
        manifest = PartedManifest(
            name=entry["name"],
            path=entry["path"],
            num_rows=settings["num_rows"],
            num_samples=sum(each["num_samples"] for each in of_parts),
            num_bytes=sum(each["num_bytes"] for each in of_parts),
            proportion=Proportion(**entry["proportion"]),
        )
        manifests.append(manifest)
    return tuple(manifests)


def _first_text_row(indexes: Sequence[PartIndex]) -> TextRow | None:
    """Return the first example; None if a part has a sample with a picture."""
    with_samples = [index for index in indexes if index.num_samples]
    rows = [index.first_text_row for index in with_samples if index.first_text_row is not None]
    if not rows or len(rows) < len(with_samples):
        return None
    return TextRow(place=rows[0]["place"], keys=tuple(rows[0]["keys"]))


def _read_index(path: PartPaths) -> PartIndex:
    """Read the index of a part, and check the sizes of its other files."""
    try:
        index = read_part_index(path.index)
        sizes = [p.stat().st_size for p in (path.tar, path.samples, path.rejects)]
        held_out = []
        if index.held_out_num_bytes is not None:
            files = (path.held_out_rows, path.held_out_pictures)
            held_out = [
                (file, "bytes", file.stat().st_size, expected)
                for file, expected in zip(files, index.held_out_num_bytes, strict=True)
            ]
    except (OSError, ValueError, TypeError) as error:
        message = f"{path.index}: {error}; preprocess slice {path.slice_index} again"
        raise StageError(message) from error
    num_rows = index.num_samples + index.num_rejected
    for file, unit, actual, expected in (
        (path.tar, "bytes", sizes[0], index.num_bytes),
        (path.samples, "bytes", sizes[1], index.samples_num_bytes),
        (path.rejects, "bytes", sizes[2], index.rejects_num_bytes),
        (path.index, "samples and rejects", num_rows, index.end_row - index.first_row),
        *held_out,
    ):
        if actual != expected:
            message = (
                f"{file}: {actual} {unit}, expected {expected}; preprocess slice "
                f"{path.slice_index} again"
            )
            raise StageError(message)
    return index


def _check_same_data(
    parent: ParentStage, paths: Sequence[PartPaths], indexes: Sequence[PartIndex]
) -> None:
    first, next_row = indexes[0], 0
    for path, index in zip(paths, indexes, strict=True):
        found = (index.settings, index.model_inputs, index.num_slices, index.first_row)
        if found != (first.settings, first.model_inputs, len(paths), next_row):
            missing = object()
            differing = [
                name
                for name in sorted({*first.settings, *index.settings})
                if index.settings.get(name, missing) != first.settings.get(name, missing)
            ]
            again = ("--again", parent.stage)
            message = (
                f"{path.index}: made with other settings than {paths[0].index.name} "
                f"({', '.join(differing) or 'slices or processor'} differ); the manifest or the "
                "config changed between array tasks, so preprocess all slices again by "
                f"`{resume_command(parent.run_dir, *again)}`"
            )
            raise StageError(message, resumes=[again])
        next_row = index.end_row
