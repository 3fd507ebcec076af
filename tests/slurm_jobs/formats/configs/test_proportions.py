"""Shares of several manifests: how many samples each has in the data set, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.proportions import Proportion, mixed_counts
from slurm_jobs.formats.configs.stages import ConsolidateConfig, PreprocessConfig

WEIGHTS = st.floats(0.001, 1000, allow_nan=False)


@given(st.lists(st.tuples(st.integers(1, 10_000), WEIGHTS), min_size=1, max_size=9))
def test_weights_divide_the_number_of_all_samples(entries: list[tuple[int, float]]) -> None:
    available = [num for num, _ in entries]
    counts = mixed_counts(available, [Proportion(weight=weight) for _, weight in entries])
    total, sum_of_weights = sum(available), sum(weight for _, weight in entries)
    assert min(counts) >= 1
    assert total <= sum(counts) < total + len(entries)  # more only for those with a single one
    for count, (_, weight) in zip(counts, entries, strict=True):
        assert abs(count - max(1, total * weight / sum_of_weights)) <= 1


@pytest.mark.parametrize(
    ("num", "proportion", "count"),
    [
        (10, {}, 10),
        (10, {"repeat": 2}, 20),
        (10, {"repeat": 2.5}, 25),
        (100, {"repeat": 0.07}, 7),
        (10, {"repeat": 0.001}, 1),
        (10, {"num_samples": 3}, 3),
        (10, {"num_samples": 33}, 33),
        (0, {"num_samples": 33}, 0),
    ],
)
def test_repeat_and_num_samples_give_exact_counts(
    num: int, proportion: dict[str, Any], count: int
) -> None:
    assert mixed_counts([num, 7], [Proportion(**proportion), Proportion()]) == [count, 7]


@pytest.mark.parametrize(
    ("manifests", "problem"),
    [
        ([], "manifest is an empty list"),
        (["a/rows.csv", "b/rows.csv"], "manifest.1 is called `rows`, as manifest.0 is"),
        ([{"path": "a", "repeat": 2, "weight": 1}], "manifest.0.repeat and manifest.0.weight are"),
        (["a", {"path": "b", "weight": 1}], "manifest.1.weight is given, and manifest.0 has no"),
    ],
)
def test_lists_that_contradict_themselves_are_refused(manifests: list[Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build_config(PreprocessConfig, {"manifest": manifests, "processor": "p"})


def test_entries_are_called_by_their_name_or_else_by_their_file() -> None:
    manifests = ["data/a.jsonl", {"path": "data/b.json", "name": "vqa"}, {"path": "/c/charts"}]
    config = build_config(PreprocessConfig, {"manifest": manifests, "processor": "p"})
    assert [entry.label for entry in config.manifests] == ["a", "vqa", "charts"]


def test_mixture_of_consolidate_takes_one_share_of_a_manifest() -> None:
    with pytest.raises(ValueError, match=r"mixture\.a\.repeat and mixture\.a\.weight are both"):
        build_config(ConsolidateConfig, {"mixture": {"a": {"repeat": 2, "weight": 1}}})
