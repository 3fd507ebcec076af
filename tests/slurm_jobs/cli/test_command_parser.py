"""What words that no verb takes are answered, with the nearest option that there is."""

from __future__ import annotations

import pytest

from slurm_jobs.cli import command_parser
from tests.slurm_jobs.cli.command import Command


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("report", "--expotr=F", "R"), "no option `--expotr`; did you mean `--export`?"),
        (("probe", "s.yaml", "--node", "3"), "no option `--node`; did you mean `--nodes`?"),
        (("status", "--html"), "no option `--html`"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_of_its_verb(
    command: Command, words: tuple[str, ...], near: str
) -> None:
    ended = command(*words)
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == f"slurm-jobs {words[0]}: error: {near}"


@pytest.mark.parametrize("verb", command_parser.VERBS)
def test_every_option_of_a_verb_can_be_suggested(verb: str) -> None:
    parser = command_parser.build_parser([verb]).verb
    options = {name for action in parser._actions for name in action.option_strings}
    known = command_parser._OPTION.findall(parser.format_usage())
    assert {name for name in options if name.startswith("--")} - {"--help"} <= set(known)
