"""Remedies for a list that was given as one value, or as a text."""

from typing import Any

import pytest

from slurm_jobs.spec.model import Stage
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.document import YamlDocument
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.train_spec import TRAIN

STEPS = "give the first and the last step, such as [20, 40]"


def remedy_of(section: str, key: str, value: Any) -> str:
    """What a training's config says of a value, behind what was found."""
    values = {"num_steps": 100, section: {key: value}}
    document = YamlDocument(file="f", value=values)
    (problem,) = validate_values(TRAIN, document, values, ())[1]
    return problem.message.partition(": expected a list, found ")[2].partition("; ")[2]


@pytest.mark.parametrize(
    ("section", "key", "value", "remedy"),
    [
        ("profile", "steps", "20, 40", "write [20, 40]"),
        ("profile", "steps", "[20, 40]", "remove the quotes"),
        ("profile", "steps", 20, STEPS),
        ("profile", "steps", "some", ""),
        ("profile", "steps", True, ""),
        ("profile", "ranks", 0, "write [0]"),
        ("profile", "ranks", "0", "write [0]"),
        ("profile", "ranks", "0-3", "write [0, 1, 2, 3]"),
        ("compile", "towers", "vision", "write [vision]"),
        ("compile", "towers", "vision, language", "write [vision, language]"),
        ("adapters", "targets", "language", "write [language]"),
        ("adapters", "targets", "a: b", 'write ["a: b"]'),
        ("adapters", "targets", "x" * 500, ""),
        ("trackers", "use", "wandb,tensorboard", "write [wandb, tensorboard]"),
        ("trackers", "use", "tensorbord", ""),
    ],
)
def test_a_list_that_was_given_otherwise_is_proposed_as_it_is_taken(
    section: str, key: str, value: Any, remedy: str
) -> None:
    assert remedy_of(section, key, value) == remedy
    if remedy.startswith("write ["):
        proposed = read_yaml(remedy.removeprefix("write "), "f").value
        values = {"num_steps": 100, section: {key: proposed}}
        assert validate_values(TRAIN, read_yaml("a", "f"), values, ())[1] == []


def test_one_line_of_shell_stays_one() -> None:
    values = {"shell": "x", "setup": "module load a, b"}
    (problem,) = validate_values(Stage, read_yaml("a", "f"), values, ())[1]
    assert problem.message.endswith('; write ["module load a, b"]')
