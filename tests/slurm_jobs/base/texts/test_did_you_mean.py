"""Suggestion of the known word that a misspelt one is nearest to."""

import pytest

from slurm_jobs.base.texts.did_you_mean import did_you_mean


@pytest.mark.parametrize("word", ["nods", "nodse", "node"])
def test_the_nearest_known_word_is_suggested(word: str) -> None:
    assert did_you_mean(word, ["gpu", "modes_of_work", "nodes"]) == "; did you mean `nodes`?"


def test_nothing_is_suggested_for_a_word_unlike_all() -> None:
    assert did_you_mean("zzz", ["nodes", "gpu"]) == ""
