"""Targets grouped by the manifest of their sample."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.data.batches.learned_targets import find_learned
from pipeline.data.batches.manifest_groups import group_manifests, mixed_manifests


def info_of(**num_rows: int) -> Any:
    """Return the part of a data set's description that is read; no manifests: it is not mixed."""
    manifests = tuple(SimpleNamespace(name=name, num_rows=num) for name, num in num_rows.items())
    return SimpleNamespace(manifests=manifests or None)


def test_targets_are_in_the_group_of_their_samples_manifest() -> None:
    # Row 9 is the last of `a`, and the sample with key 27 is a copy of row 12, of `b`.
    groups = group_manifests(info_of(a=10, b=5), ["z", "b", "a"])
    assert groups is not None
    labels = [np.array([-100, 5, 6]), np.array([7, -100]), np.array([-100, 8, -100, 9])]
    row = np.concatenate([[-100, *labels[0][1:]], [-100, -100], labels[2], [-100, -100]])
    bounds = np.array([0, 3, 5, 9, 11])
    learned = find_learned(row[None], bounds, ("9", "3", "27"), None, torch.from_numpy)
    grouped = groups.group(learned, ("000000009", "000000003", "000000027"), labels, torch.tensor)
    assert grouped.groups is not None
    assert (grouped.groups.number, grouped.groups.of_targets.tolist()) == (3, [2, 2, 1, 1])
    assert grouped.num_by_group == (0, 2, 2)
    assert replace(grouped, groups=None, num_by_group=learned.num_by_group) == learned


@pytest.mark.parametrize(
    ("infos", "names"),
    [
        ([info_of(a=3, b=1), info_of(), info_of(b=1, c=4)], ["a", "b", "c"]),
        ([info_of(a=3)], []),
        ([info_of()], []),
    ],
    ids=["of all phases", "only one", "not mixed"],
)
def test_the_manifests_of_all_phases_are_named_if_there_are_several(infos, names) -> None:
    assert mixed_manifests(infos) == names


def test_a_data_set_that_is_not_mixed_has_no_groups() -> None:
    assert group_manifests(info_of(), ["a", "b"]) is None
    assert group_manifests(info_of(a=3), []) is None
