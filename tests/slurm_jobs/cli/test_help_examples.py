"""Examples in `--help`: every verb has some, its parser takes them, and they fit the screen."""

from __future__ import annotations

import re
import shlex

import pytest

from slurm_jobs.cli import command_parser
from slurm_jobs.cli.help_examples import EXAMPLES, examples_text
from tests.slurm_jobs.cli.command import Command


@pytest.mark.parametrize("verb", command_parser.VERBS)
def test_every_verb_has_two_to_four_examples_that_its_parser_takes(verb: str) -> None:
    examples = EXAMPLES.get(verb, ())
    assert 2 <= len(examples) <= 4, f"slurm_jobs/cli/main.py has {len(examples)} of {verb}"
    for example, _ in examples:
        program, *words = shlex.split(example)
        assert program == "slurm-jobs"
        assert command_parser.build_parser([verb]).parse_args(words).verb == verb


def test_no_example_is_of_a_verb_that_there_is_not() -> None:
    assert set(EXAMPLES) <= set(command_parser.VERBS)


@pytest.mark.parametrize("verb", ["", *command_parser.VERBS])
def test_the_help_shows_the_examples_whole_and_fits_80_columns(
    verb: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = command(*filter(None, [verb]), "--help").result
    assert max(map(len, out.splitlines())) <= 80
    joined = re.sub(r" \\\n +", " ", out)  # as a shell reads a line that goes on
    assert all(example in joined for example, _ in EXAMPLES.get(verb, ()))
    assert not verb or examples_text(verb) in out
