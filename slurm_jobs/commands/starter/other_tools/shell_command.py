"""Training command of a shell script: its variables, its launcher and its options.

A script is read, never run. Variables that it sets itself are replaced, and `$(expr 16 / $n)` is
computed. Other substitutions stay in the values as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

ToolKind = Literal["ms-swift", "LLaMA-Factory", "axolotl"]
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_SUM = re.compile(r"\$\(\s*expr ([^()]*)\)|\$\(\(([^()]*)\)\)")
_TERM = re.compile(r"\d+|[-+*/]")
_END = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "2>&1", "2>"})
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCommand:
    """Command that starts a training."""

    tool: ToolKind
    verb: str
    """`sft`, `rlhf`, `train`."""
    settings: Mapping[str, Any]
    """Variables of its environment, options of its launcher, and its own options, by name."""
    config: str | None = None
    """File that it names instead of options, or in addition."""


def training_commands(text: str) -> Iterator[TrainingCommand]:
    """Yield the commands of a script that start a training with a tool that is known here."""
    variables: dict[str, str] = {}
    exported: dict[str, str] = {}
    for command in _commands(text, variables, exported):
        environment, words = dict(exported), list(command)
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            environment[match[1]] = match[2]
            del words[0]
        found = _entry(words)
        if found is None:
            continue
        tool, verb, launcher, own = found
        options, config = _options(own)
        of_launcher, _ = _options(launcher)
        settings = {name: _value(text) for name, text in environment.items()}
        yield TrainingCommand(
            tool=tool, verb=verb, settings={**settings, **of_launcher, **options}, config=config
        )


def _commands(
    text: str, variables: dict[str, str], exported: dict[str, str]
) -> Iterator[list[str]]:
    """Yield commands as words, and add assignments of the lines before to the variables."""
    for line in _whole_lines(text):
        words = _words(_replaced(line, variables))
        if words is None:  # a quotation that never ends
            continue
        is_export = words[:1] == ["export"]
        assigned: dict[str, str] = {}
        rest = words[1:] if is_export else words
        for word in rest:
            match = _ASSIGNMENT.fullmatch(word)
            if match is not None:
                assigned[match[1]] = match[2]
        if len(assigned) == len(rest):
            variables.update(assigned)
            if is_export:
                exported.update(assigned)
        else:
            end = next((i for i, word in enumerate(words) if word in _END), len(words))
            yield words[:end]


def _whole_lines(text: str) -> Iterator[str]:
    """Yield lines with those that continue them: after a backslash, or within quotation marks."""
    line = ""
    for part in text.splitlines():
        if not line and part.lstrip().startswith("#"):
            continue
        line += part
        if part.rstrip().endswith("\\"):
            line = line.rstrip()[:-1] + " "
            continue
        if _words(line) is None:
            line += "\n"
            continue
        yield line
        line = ""
    yield line


def _words(line: str) -> list[str] | None:
    """Return the words before a comment; None if a quotation does not end in the line.

    A `#` within a word begins no comment: `data#1000`.
    """
    for text in (line, line.partition(" #")[0]):
        try:
            words = shlex.split(text)
        except ValueError:
            continue
        return words[: next((i for i, word in enumerate(words) if word[0:1] == "#"), len(words))]
    return None


def _replaced(line: str, variables: Mapping[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        value = variables.get(match[1] or match[3], match[2])
        return match[0] if value is None else value

    return _SUM.sub(_computed, _VARIABLE.sub(known, line))


def _computed(match: re.Match[str]) -> str:
    """Return the result of whole numbers, from left to right; the text itself if there is none."""
    terms = (match[1] or match[2] or "").split()
    if len(terms) % 2 == 0 or not all(_TERM.fullmatch(term) for term in terms):
        return match[0]
    try:
        result = int(terms[0])
        for sign, number in zip(terms[1::2], map(int, terms[2::2]), strict=True):
            if sign == "/":
                result //= number
            else:
                result = {"*": result * number, "+": result + number, "-": result - number}[sign]
    except (ValueError, KeyError, ZeroDivisionError):
        return match[0]
    return str(result)


def _entry(words: list[str]) -> tuple[ToolKind, str, list[str], list[str]] | None:
    """Return tool, verb, and the words before and after; None if it starts no training."""
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        after = words[place + 1 :]
        if name == "swift" and after:
            return "ms-swift", after[0], words[:place], after[1:]
        if name in {"sft.py", "rlhf.py", "pt.py"}:
            return "ms-swift", name.removesuffix(".py"), words[:place], after
        if name in {"llamafactory-cli", "lmf"} and after:
            return "LLaMA-Factory", after[0], words[:place], after[1:]
        if name in {"train.py", "train_bash.py"}:
            return "LLaMA-Factory", "train", words[:place], after
        if name == "axolotl" and after:
            return "axolotl", after[0], words[:place], after[1:]
        if name == "axolotl.cli.train":
            return "axolotl", "train", words[:place], after
    return None


def _options(words: list[str]) -> tuple[dict[str, Any], str | None]:
    """Return options by name, and the first file of settings that is no option's value."""
    options: dict[str, list[str]] = {}
    config = None
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            options[name] = [value] if equals else []
            name = "" if equals else name
        elif name:
            options[name].append(word)
        elif _ASSIGNMENT.fullmatch(word):
            key, _, value = word.partition("=")
            options[key] = [value]
        elif word.endswith(_SUFFIXES) and config is None:
            config = word
    values: dict[str, Any] = {}
    for key, texts in options.items():
        items = [_value(text) for text in texts]
        values[key.replace("-", "_")] = items if len(items) > 1 else (items or [True])[0]
    return values, config


def _value(text: str) -> Any:
    """Return the number, truth value or JSON that a word means, else the word."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    is_plain = value is None or isinstance(value, (bool, int, float))
    return value if is_plain or text[:1] in {"{", "["} else text
