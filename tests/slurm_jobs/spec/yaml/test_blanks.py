"""Characters that are like a space, where they are meant."""

import pytest

from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.yaml.read_text import BOM, NBSP


@pytest.mark.parametrize(
    "text",
    [
        f"a: Note:{NBSP}text\n",
        f"a: 10{NBSP}km\n",
        f"a: '{NBSP}quoted:{NBSP}'\n",
        f"a: |\n  b:{NBSP}c\n  {NBSP}d\n",
        f"{BOM}a: one{NBSP}word\n",
        f"# b:{NBSP}c\na: 1\n",
    ],
)
def test_such_characters_in_texts_and_between_words_are_meant(text: str) -> None:
    assert read_yaml(text, "f").problems == ()
