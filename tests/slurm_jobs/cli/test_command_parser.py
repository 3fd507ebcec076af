"""What `--help` says, and what words that no verb takes are answered."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.cli import command_parser
from slurm_jobs.cli.arguments import check_place
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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone/page.html", "--html gone/page.html: there is no folder .*gone; make it"),
        ("there", "--html there: this is a folder; name a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match=reason):
        check_place("--html", Path(name))


def test_output_files_that_exist_or_have_siblings_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.html").write_text("of a run before")
    for name in ("page.html", "new.html", str(tmp_path / "new.html")):
        check_place("--html", Path(name))
