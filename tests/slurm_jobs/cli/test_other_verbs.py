"""What words that are no verbs are answered."""

from __future__ import annotations

import pytest

from slurm_jobs.cli.command_parser import VERBS
from slurm_jobs.cli.other_verbs import VERB_OF
from tests.slurm_jobs.cli.command import Command


def test_no_word_of_another_tool_is_a_verb_or_leads_to_none() -> None:
    assert not set(VERB_OF) & set(VERBS)
    assert set(VERB_OF.values()) <= set(VERBS)


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("stop", "cancel"),
        ("kill", "cancel"),
        ("ls", "runs"),
        ("log", "logs"),
        ("rerun", "resume"),
        ("retry", "resume"),
        ("repair", "resume"),
        ("queue", "status"),
        ("delete", "clean"),
    ],
)
def test_a_word_of_another_tool_leads_to_the_verb(command: Command, word: str, verb: str) -> None:
    ended = command(word, "shapes-2026")
    assert ended.code == 2
    answer = f"no verb `{word}`: to {VERBS[verb]}, type `slurm-jobs {verb}`"
    assert ended.err.splitlines()[-1] == f"slurm-jobs: error: {answer}"


def test_a_misspelt_verb_is_answered_with_the_nearest_alone(command: Command) -> None:
    answer = "no verb `subimt`; did you mean `submit`, to submit a spec's jobs and return at once?"
    assert command("subimt").err.splitlines()[-1] == f"slurm-jobs: error: {answer}"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (
            "study.yaml",
            "no verb `study.yaml`: to submit a spec, type `slurm-jobs submit study.yaml`",
        ),
        ("version", "no verb `version`: type `slurm-jobs --version`"),
    ],
)
def test_a_spec_or_version_leads_to_what_was_probably_meant(
    command: Command, word: str, answer: str
) -> None:
    assert command(word).err.splitlines()[-1] == f"slurm-jobs: error: {answer}"


def test_help_of_a_verb_may_be_asked_for_in_words(command: Command) -> None:
    assert command("help", "submit", code=0).out == command("submit", "--help", code=0).out


def test_a_word_like_no_verb_is_answered_with_all_verbs(command: Command) -> None:
    answer = command("frobnicate").err.splitlines()[-1]
    assert all(verb in answer for verb in VERBS)


def test_help_of_a_word_that_is_no_verb_names_that_word(command: Command) -> None:
    for word in ("subimt", "stop", "frobnicate"):
        assert command("help", word, code=2).err == command(word, code=2).err
