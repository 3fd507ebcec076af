"""Mixture: which samples of the parts a data set has, and how many copies of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.consolidate.parts import PartedManifest, Parts
from pipeline.data.disk_format.index import manifests_of_keys
from pipeline.data.permutation import make_permutation
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.configs.proportions import Proportion, mixed_counts, proportion_problems
from slurm_jobs.formats.configs.stages import ConsolidateConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """Numbers of a data set's samples, manifest by manifest, and the sample that each stands for.

    Of each manifest, whole copies of all samples come first, and then a part of them that the seed
    draws. Nothing depends on how the rows were cut into slices.
    """

    num_rows: int
    """Rows of all manifests."""
    manifests: tuple[PartedManifest, ...]
    counts: tuple[int, ...]
    """Samples of each manifest in the data set, copies included."""
    seed: int

    @property
    def is_of_list(self) -> bool:
        """True if `preprocess` has a list of manifests, even of one."""
        return bool(self.manifests[0].name)

    @property
    def num_samples(self) -> int:
        """Samples of the data set."""
        return sum(self.counts)

    @property
    def num_bytes(self) -> int:
        """Bytes of all samples, if those that are drawn have the mean size."""
        pairs = zip(self.manifests, self.counts, strict=True)
        return sum(each.num_bytes * count // max(1, each.num_samples) for each, count in pairs)

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sample that each number stands for, counted over all parts, and its copy.

        Copies are counted from 0; the first is the sample itself.
        """
        first_number = np.cumsum([0, *self.counts])
        first_sample = np.cumsum([0, *(each.num_samples for each in self.manifests)])
        samples, copies = np.empty_like(numbers), np.empty_like(numbers)
        for place, (manifest, count) in enumerate(zip(self.manifests, self.counts, strict=True)):
            if not count:
                continue
            is_here = (numbers >= first_number[place]) & (numbers < first_number[place + 1])
            copy, within = np.divmod(numbers[is_here] - first_number[place], manifest.num_samples)
            is_drawn = copy == count // manifest.num_samples
            drawing = make_permutation(manifest.num_samples, [self.seed, place])
            within[is_drawn] = drawing.at(within[is_drawn])
            samples[is_here] = first_sample[place] + within
            copies[is_here] = copy
        return samples, copies

    def keys(self, keys: np.ndarray, copies: np.ndarray) -> np.ndarray:
        """Return the keys of copies of the samples with `keys`: each has its own."""
        return keys + copies * self.num_rows

    def manifest_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the place in `manifests` of the manifest that each key is from."""
        return manifests_of_keys(keys, [each.num_rows for each in self.manifests])


def make_mixture(parts: Parts, stage: ConsolidateConfig, *, limit: int | None) -> Mixture:
    """Return the mixture of the parts' manifests by the shares of `preprocess` or of this stage.

    With a `limit` of rows, `num_samples` of a manifest is at most that.

    Raises:
        StageConfigError: the shares contradict each other, or are for unknown manifests.
        StageDataError: no row of a manifest became a sample.
    """
    names = [manifest.name for manifest in parts.manifests]
    given = stage.mixture or {}
    for name in given:
        if name not in names:
            message = (
                f"mixture.{name}: `{parts.parent.stage}` has no manifest of this name"
                f"{did_you_mean(name, names)} (it has: {', '.join(names) or 'a single one'})"
            )
            raise StageConfigError(message)
    proportions = {
        manifest.name: given.get(manifest.name, manifest.proportion) for manifest in parts.manifests
    }
    for problem in proportion_problems(proportions):
        message = f"mixture of `{parts.parent.stage}`: {problem}"
        raise StageConfigError(message)
    for manifest in parts.manifests:
        if manifest.num_rows and not manifest.num_samples:  # none are read of a small `limit`
            held_out = "" if parts.num_held_out is None else "lower `held_out.share`, "
            message = (
                f"{manifest.path}: none of its {manifest.num_rows:,} rows became a sample; fix it, "
                f"{held_out}or leave it out of the list, and preprocess all slices again by "
                f"`{parts.again}`"
            )
            raise StageDataError(message, resumes=[parts.again_options])
    available = [manifest.num_samples for manifest in parts.manifests]
    counts = mixed_counts(available, [_limited(each, limit) for each in proportions.values()])
    return Mixture(
        num_rows=parts.reject_limit.num_rows,
        manifests=parts.manifests,
        counts=tuple(counts),
        seed=stage.seed,
    )


def _limited(proportion: Proportion, limit: int | None) -> Proportion:
    if limit is None or proportion.num_samples is None:
        return proportion
    return Proportion(num_samples=min(limit, proportion.num_samples))
