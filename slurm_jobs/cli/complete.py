"""What can stand at the cursor: the hidden `slurm-jobs __complete`, called at each TAB.

Options, choices and places of arguments are those of the parser of the verb that is typed; names
come from `complete_names`. The answer is lines for the scripts of `completion_scripts`. Whatever
goes wrong, the answer is empty: a TAB prints no error, and waits no longer than `MAX_WAIT_S`.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.cli.arguments import path_of
from slurm_jobs.cli.complete_line import TypedWord, quoted, words_of
from slurm_jobs.cli.complete_names import path_names, run_names, spec_keys, stages_of

MAX_WAIT_S = 2.0
"""A file system that hangs must not hang the terminal."""

_OPEN_ENDS = ("/", ".", "=", ":")
"""More of the same word follows."""

SPECS, RUNS, STAGES, KEYS, FILES = "SPECS", "RUNS", "STAGES", "KEYS", "FILES"
RECIPES = "RECIPES"
_SOURCES = {
    "SPEC": (SPECS,),
    "RUN": (RUNS, SPECS),
    "RUN|FOLDER": (RUNS, SPECS),
    "SPEC|RUN": (SPECS, RUNS),
    "SPEC|RUN|FOLDER": (SPECS, RUNS),
    "A": (RUNS, SPECS),
    "B": (RUNS, SPECS),
    "STAGE": (STAGES,),
    "STAGE[:SLICES]": (STAGES,),
    "KEY=VALUE": (KEYS,),
    "FILE": (FILES,),
    "FILE.png": (FILES,),
    "FOLDER": (FILES,),
    "PATH": (FILES,),
    "PROGRAM": (FILES,),
    "RECIPE": (RECIPES,),
}
"""Where the values of an argument come from, by its metavar."""


@dataclass
class _Typed:
    """What stands before the cursor, after the verb."""

    values: list[str] = field(default_factory=list)
    """Of the arguments without a name."""
    given: set[str] = field(default_factory=set)
    """Options."""
    open_option: argparse.Action | None = None
    """It waits for its value."""


def answer(arguments: Sequence[str]) -> None:
    """Print what `__complete SHELL ...` asks for; never an error, never an exit code but 0."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT_S)
    # No handler runs while a dead file server holds this thread: then another one ends the process.
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    faulthandler.dump_traceback_later(MAX_WAIT_S + 0.5, exit=True, file=nowhere)
    try:
        shell, *rest = arguments
        words = words_of(rest[0])[1:] if shell == "bash" else _given_words(shell, rest)
        lines = answer_lines(words, is_bash=shell == "bash")
        sys.stdout.buffer.write(os.fsencode("".join(f"{line}\n" for line in lines)))
        sys.stdout.buffer.flush()
    except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - see above: a TAB is silent
        os._exit(0)


def _given_words(shell: str, words: Sequence[str]) -> list[TypedWord]:
    """Words that a shell has read already; the last is what is typed, in fish with its quotes."""
    *before, current = words
    if shell == "fish":
        *before, _ = before  # a `--`, as a word may look like an option of fish's own
        current = words_of(current)[-1].text
    return [TypedWord(word) for word in (*before, current)]


def answer_lines(words: Sequence[TypedWord], *, is_bash: bool) -> list[str]:
    """The first line, for the script, and a line a candidate.

    Args:
        words: After the program's name; the last is being typed.
        is_bash: Candidates are text for the line, from the place where bash begins its word; zsh
            and fish take whole words, and quote them themselves.
    """
    current = words[-1]
    found = list(dict.fromkeys(candidates([word.text for word in words])))
    offered = [(text, told) for text, told in found if text != FILES]
    kinds = [] if len(offered) == len(found) else ["files"]
    if any(text.endswith(_OPEN_ENDS) for text, _ in offered):
        kinds.append("nospace")
    if is_bash:
        begin, quote = current.begin, current.quote
        return [" ".join(kinds), *(quoted(text[begin:], quote) for text, _ in offered)]
    return [" ".join(kinds), *(f"{text}\t{told}" if told else text for text, told in offered)]


def candidates(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Whole words that may stand in place of the last one, with what they mean."""
    from slurm_jobs.cli import VERBS, verb_parser

    *before, current = words
    verb = next((word for word in before if not word.startswith("-")), None)
    if verb is None:
        named = {**VERBS, "--help": "show this help", "--version": "show the version"}
        yield from _beginning(current, named.items())
        return
    if verb not in VERBS:
        return
    parser = verb_parser(verb)
    typed = _typed(parser, before[before.index(verb) + 1 :])
    option, equals, value = current.partition("=")
    action = _option(parser, option)
    if typed.open_option is not None:
        yield from _values(parser, typed, typed.open_option, current)
    elif equals and action is not None:
        found = _values(parser, typed, action, value)
        yield from ((f"{option}={text}", told) for text, told in found if text != FILES)
    elif current.startswith("-"):
        yield from _beginning(current, _options(parser, typed))
    else:
        places = [a for a in _positionals(parser) if a.help != argparse.SUPPRESS]
        if len(typed.values) < len(places) or (places and places[-1].nargs in ("+", "*")):
            place = places[min(len(typed.values), len(places) - 1)]
            yield from _values(parser, typed, place, current)
            if verb == "logs" and not typed.values:  # the newest run's: `logs train`
                yield from _beginning(current, ((name, "stage") for name in stages_of(None)))


def _beginning(prefix: str, named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((text, told) for text, told in named if text.startswith(prefix))


def _typed(parser: argparse.ArgumentParser, words: Sequence[str]) -> _Typed:
    """Read what stands before the cursor as the parser will."""
    typed = _Typed()
    for word in words:
        if typed.open_option is not None and not word.startswith("-"):
            if typed.open_option.dest == "run":
                typed.values.append(word)
            typed.open_option = None
            continue
        typed.open_option = None
        action = _option(parser, word.partition("=")[0])
        if action is None:
            typed.values += [word] if not word.startswith("-") else []
            continue
        typed.given.update(action.option_strings)
        if action.nargs != 0 and "=" not in word:
            typed.open_option = action
    return typed


def _option(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    found = (action for action in parser._actions if word in action.option_strings)  # noqa: SLF001 - the only list of them
    return next(found, None)


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]  # noqa: SLF001 - the only list of them


def _options(parser: argparse.ArgumentParser, typed: _Typed) -> Iterator[tuple[str, str]]:
    """Long names of the options that may still be given, with their help's first words."""
    for action in parser._actions:  # noqa: SLF001 - the only list of them
        is_open = isinstance(action, argparse._AppendAction) or not (  # noqa: SLF001 - has no other name
            typed.given & set(action.option_strings)
        )
        if is_open and action.help != argparse.SUPPRESS:
            told = (action.help or "").partition(";")[0].partition(",")[0]
            yield from ((name, told) for name in action.option_strings if name.startswith("--"))


def sources(action: argparse.Action) -> tuple[str, ...]:
    """Where its values come from; nothing for a number or free text."""
    if action.dest == "stage":
        return (STAGES,)
    if action.metavar is None and action.type is path_of:
        return (FILES,)
    return _SOURCES.get(str(action.metavar), ())


def _values(
    parser: argparse.ArgumentParser, typed: _Typed, action: argparse.Action, prefix: str
) -> Iterator[tuple[str, str]]:
    """What may be the value of an argument or option, and begins so."""
    if action.choices is not None:
        yield from _beginning(prefix, ((str(choice), "") for choice in action.choices))
        return
    places = _positionals(parser)
    target = typed.values[0] if places and action is not places[0] and typed.values else None
    for source in sources(action):
        yield from _of_source(source, prefix, target, action)


def _recipes() -> list[str]:
    """As `starter.recipes` has them, which loads more than a TAB may take."""
    from slurm_jobs.shipped import shipped_path

    return sorted(path.stem for path in shipped_path("configs").glob("*.yaml"))


def _of_source(
    source: str, prefix: str, target: str | None, action: Any
) -> Iterator[tuple[str, str]]:
    if source == FILES or (source in (RUNS, SPECS) and prefix.startswith("~")):
        yield FILES, ""
    elif source == SPECS:
        yield from ((text, "") for text in path_names(prefix))
    elif source == RUNS:
        done, comma, last = (
            prefix.rpartition(",") if action.metavar in ("A", "B") else ("", "", prefix)
        )
        yield from ((f"{done}{comma}{name}", "run") for name in run_names(last))
    elif source == STAGES:
        yield from _beginning(prefix, ((name, kind) for name, kind in stages_of(target).items()))
    elif source == RECIPES:
        yield from _beginning(prefix, ((name, "") for name in ("all", *_recipes())))
    elif source == KEYS:
        yield from ((text, "") for text in spec_keys(prefix, stages_of(target)))
