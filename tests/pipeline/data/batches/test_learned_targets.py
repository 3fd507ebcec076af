"""Runs of learned tokens as levels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.batches.learned_targets import (
    Learned,
    LevelRules,
    UnfitSampleError,
    find_learned,
    refuse_batch,
)
from slurm_jobs.base.errors import StageConfigError, StageError


def class_of(answer: tuple[int, ...]) -> int:
    if answer not in {(7,), (8, 9)}:
        message = f"{answer} is no class"
        raise ValueError(message)
    return 0 if answer == (7,) else 1


TEXT = LevelRules(names=("a", "b"), readers={})
MIXED = LevelRules(names=("a", "b"), readers={0: class_of})


def learned_levels(places, tokens, bounds: list[int], keys, rules: LevelRules) -> Learned:
    labels = np.full((1, bounds[-1]), -100)
    labels[0, places] = tokens
    return find_learned(labels, np.array(bounds), keys, rules, torch.from_numpy)


def test_each_run_of_a_sample_is_a_level_also_where_samples_touch() -> None:
    # Samples of 6 and 4 places, the second one learned from its first place on.
    learned = learned_levels([1, 2, 5, 7, 9], range(5), [0, 6, 10, 12], ("x", "y"), TEXT)
    assert learned.groups is not None
    assert learned.groups.number == 2
    assert learned.groups.of_targets.tolist() == [0, 0, 1, 0, 1]
    assert learned.num_by_group == (3, 2)
    assert learned.classes == {}


def test_answers_predicted_as_classes_are_no_text() -> None:
    learned = learned_levels([1, 4, 8, 9, 11], [7, 5, 8, 9, 6], [0, 6, 12], ("x", "y"), MIXED)
    assert learned.places.tolist() == [3, 10]
    assert learned.targets.tolist() == [5, 6]
    assert [values.tolist() for values in learned.classes[0]] == [[0, 7], [0, 1]]
    assert learned.num_by_group == (2, 2)
    assert learned.num_tokens == 5


@pytest.mark.parametrize(
    ("learned", "words"),
    [
        ([1, 4, 7], "sample y has 1 learned answers, but there are 2 levels"),
        ([1, 3, 5, 7, 9], "sample x has 3 learned answers"),
        ([1, 4], "a sample of .*x.*y.* has 0 learned answers"),
        ([], "a sample of .*x.*y.* has 0 learned answers"),
    ],
)
def test_sample_with_more_or_fewer_levels_is_named(learned: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        learned_levels(learned, learned, [0, 6, 12], ("x", "y"), TEXT)


def test_answer_that_is_no_class_is_named_with_its_sample_and_level() -> None:
    with pytest.raises(ValueError, match=r"sample y, level a: \(3,\) is no class"):
        learned_levels([1, 4, 7, 9], [7, 5, 3, 6], [0, 6, 12], ("x", "y"), MIXED)


@given(
    samples=st.lists(
        st.tuples(*[st.tuples(st.integers(1, 3), st.integers(1, 4))] * 3), min_size=1, max_size=5
    ),
    padding=st.integers(0, 3),
)
def test_levels_of_any_samples_are_those_that_they_were_made_of(samples, padding) -> None:
    rules = LevelRules(names=("a", "b", "c"), readers={})
    learned, expected, ends = [], [], [0]
    for sample in samples:
        place = ends[-1]
        for level, (num_asked, num_answered) in enumerate(sample):
            place += num_asked
            learned += range(place, place + num_answered)
            expected += [level] * num_answered
            place += num_answered
        ends.append(place)
    bounds = [*ends, ends[-1] + padding] if padding else ends
    keys = tuple(str(number) for number in range(len(samples)))
    groups = learned_levels(learned, learned, bounds, keys, rules).groups
    assert groups.of_targets.tolist() == expected


def test_a_permanent_error_stays_permanent_when_a_batch_is_refused():
    with pytest.raises(StageConfigError, match="no attempt helps"):
        refuse_batch("here", StageConfigError("no attempt helps"))
    with pytest.raises(StageConfigError, match="here: two levels; run `preprocess` again"):
        refuse_batch("here", UnfitSampleError("two levels"))
    with pytest.raises(StageError, match="here: odd") as other:
        refuse_batch("here", ValueError("odd"))
    assert not isinstance(other.value, StageConfigError)
