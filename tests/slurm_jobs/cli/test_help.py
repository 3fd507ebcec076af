"""What `--help` says: examples that can be typed, in 80 columns."""

from __future__ import annotations

import re
import shlex

import pytest

from slurm_jobs.cli import main
from slurm_jobs.cli.main import EXAMPLES, examples_text
from tests.slurm_jobs.cli.command import run_command


def help_of(verb: str, capsys: pytest.CaptureFixture[str]) -> str:
    run_command(*([verb] if verb else []), "--help")
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_has_two_to_four_examples_that_its_parser_takes(verb: str) -> None:
    examples = EXAMPLES.get(verb, ())
    assert 2 <= len(examples) <= 4, f"slurm_jobs/cli/main.py has {len(examples)} of {verb}"
    for command, _ in examples:
        program, *words = shlex.split(command)
        assert program == "slurm-jobs"
        assert main.build_parser([verb]).parse_args(words).verb == verb


def test_no_example_is_of_a_verb_that_there_is_not() -> None:
    assert set(EXAMPLES) <= set(main.VERBS)


@pytest.mark.parametrize("verb", main.VERBS)
def test_the_help_shows_the_examples_whole_and_fits_80_columns(verb, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = help_of(verb, capsys)
    assert examples_text(verb) in out
    assert max(map(len, out.splitlines())) <= 80
    joined = re.sub(r" \\\n +", " ", out)  # as a shell reads a line that goes on
    assert all(command in joined for command, _ in EXAMPLES[verb])


def test_the_help_of_all_verbs_fits_80_columns(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, help_of("", capsys).splitlines())) <= 80
