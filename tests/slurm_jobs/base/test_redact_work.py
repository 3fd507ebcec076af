"""The work of redaction: it grows with the length of a text and with nothing else."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from slurm_jobs.base import redact
from slurm_jobs.base.redact import MAX_KNOWN, MAX_NAME_CHARS, NOT_SHOWN, hidden_text, looks_secret
from tests.regex_work import count_steps

NUM_CHARACTERS = 800
MOST_STEPS = 250
"""Steps for each character. The worst of 300 texts needed 124, and half of them fewer than 20."""
PIECES = (
    *("token=", "TOKEN: ", "'", '"', "\\", '\\"', "$(", ")", "(", "-u ", "-u", "a:", "A_", "_KEY"),
    *("://", "@", "\n", " ", "\t", "{", "}", "[", "]", "auth: Digest ", "setenv ", "set -x ", "`"),
    *("--token ", "${", "x", "x" * 30, "=", "+=", ":", ",", "'--token', ", "--user=", "MAX_", "&"),
    *("Bearer ", "\\\n", "echo ", "<<<", "password", "-", ".", "TOKENS_", "?", "http", "''", "1"),
    NOT_SHOWN,
)


class Counter:
    """Steps of all patterns and searches of one text."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, num_steps: int) -> None:
        self.left -= num_steps
        assert self.left > 0, "the work is not bounded by the length of the text"


class CountedPattern:
    """A pattern that counts the steps of what is done with it."""

    def __init__(self, pattern: re.Pattern[str], counter: Counter) -> None:
        self._pattern = pattern
        self._counter = counter

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> Any:
            text, start = args[1 if method == "sub" else 0], 0
            if method in ("match", "search") and len(args) > 1:
                start = args[1]
            kind = "sub" if method == "findall" else method
            limit = self._counter.left
            self._counter.spend(count_steps(self._pattern, text, kind, limit, start=start))
            return getattr(self._pattern, method)(*args)

        return call


class CountedText(str):
    """A text that counts the characters in which it is searched."""

    __slots__ = ("counter",)

    def find(self, part: str, start: int = 0, end: int | None = None) -> int:
        end = len(self) if end is None else end
        place = str.find(self, part, start, end)
        self.counter.spend((end if place < 0 else place) - start)
        return place

    def rfind(self, part: str, start: int = 0, end: int | None = None) -> int:
        end = len(self) if end is None else end
        place = str.rfind(self, part, start, end)
        self.counter.spend(end - max(start, place))
        return place


@pytest.fixture
def hide(monkeypatch):
    """`hidden_text` with a bound on its work, in steps for each character."""

    def hide_counted(text: str) -> str:
        counter = Counter(MOST_STEPS * len(text) + 1000)
        counted = CountedText(text)
        counted.counter = counter
        with monkeypatch.context() as patch:
            for name, value in vars(redact).items():
                if isinstance(value, re.Pattern):
                    patch.setattr(redact, name, CountedPattern(value, counter))
            words = {key: CountedPattern(value, counter) for key, value in redact._WORDS.items()}
            patch.setattr(redact, "_WORDS", words)
            return hidden_text(counted)

    return hide_counted


REPORTED = ("A_" * 600 + "=1", "'" + "auth: Digest x " * 80, "x://" + "a." * 600, "x://a:b" * 600)


@pytest.mark.parametrize("text", REPORTED, ids=[text[:12] for text in REPORTED])
def test_a_text_that_took_minutes_is_read_in_bounded_steps(hide, text):
    assert hide(text) == hidden_text(text)


@pytest.mark.parametrize("seed", range(30))
def test_the_steps_are_bounded_by_the_length_of_any_text(hide, seed):
    chance = random.Random(seed)
    repeated = "".join(chance.choices(PIECES, k=chance.randrange(1, 5)))
    start, end = ("".join(chance.choices(PIECES, k=chance.randrange(3))) for _ in range(2))
    text = start + repeated * (NUM_CHARACTERS // len(repeated)) + end
    assert hide(text) == hidden_text(text)
    mixed = "".join(chance.choices(PIECES, k=NUM_CHARACTERS // 5))
    assert hide(mixed) == hidden_text(mixed)


def test_a_name_that_is_too_long_for_one_is_a_secrets():
    assert not looks_secret("a" * MAX_NAME_CHARS)
    assert looks_secret("a" * (MAX_NAME_CHARS + 1))
    assert hidden_text("a" * 300 + "=1 x") == "a" * 300 + f"={NOT_SHOWN} x"


def test_a_text_is_hidden_whole_where_too_many_secrets_are_known():
    known = [f"secret-{number}" for number in range(MAX_KNOWN + 1)]
    assert hidden_text("a text", known) == NOT_SHOWN
    assert hidden_text("a text", known[:-1]) == "a text"
    assert hidden_text("", known) == ""


def test_a_header_with_an_open_quote_is_hidden_to_its_lines_end():
    assert hidden_text("x 'auth: Digest abc\ny") == f"x 'auth: Digest {NOT_SHOWN}\ny"
