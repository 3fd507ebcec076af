"""Targets grouped by the manifest that their sample is from, so that each has its own loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.data.batches.learned_targets import Learned, TargetGroups
from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.index import manifests_of_keys
from pipeline.data.disk_format.sample_members import IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestGroups:
    """Group of each row of a data set that was mixed from several manifests."""

    num_rows: tuple[int, ...]
    """Rows of each manifest of the data set."""
    groups: tuple[int, ...]
    """For each manifest of the data set, its group."""
    number: int
    """Number of groups; other phases may train on other manifests."""

    def group(
        self,
        learned: Learned,
        keys: Sequence[str],
        labels: Sequence[np.ndarray],
        tensor: Callable[[np.ndarray], torch.Tensor],
    ) -> Learned:
        """Return the targets in groups.

        Args:
            learned: Targets without groups.
            keys: Keys of the samples, in their order.
            labels: Labels of each sample, int [num_tokens]; its first is never a target.
            tensor: Converts an array to a tensor.
        """
        places = manifests_of_keys(np.array([int(key) for key in keys]), self.num_rows)
        groups = np.array(self.groups)[places]
        nums = [np.count_nonzero(of_sample[1:] != IGNORED_LABEL) for of_sample in labels]
        of_targets = np.repeat(groups, nums)
        return replace(
            learned,
            groups=TargetGroups(tensor(of_targets), self.number),
            num_by_group=tuple(np.bincount(of_targets, minlength=self.number).tolist()),
        )


def mixed_manifests(datasets: Sequence[DatasetInfo]) -> list[str]:
    """Return the names of all manifests of data sets, each once; none if there is only one."""
    names = [manifest.name for info in datasets for manifest in info.manifests or ()]
    unique = list(dict.fromkeys(names))
    return unique if len(unique) > 1 else []


def group_manifests(info: DatasetInfo, names: Sequence[str]) -> ManifestGroups | None:
    """Return the groups of a data set's rows, by place in `names`; None if there are none."""
    if info.manifests is None or not names:
        return None
    return ManifestGroups(
        num_rows=tuple(manifest.num_rows for manifest in info.manifests),
        groups=tuple(names.index(manifest.name) for manifest in info.manifests),
        number=len(names),
    )
