"""docs/reference/options.md, from the parsers of `slurm_jobs.cli.main`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import source_docs

from slurm_jobs.cli.command_parser import VERBS, build_parser

INTRO = """\
# Every option of every command

The options of each command, from its `--help`. [The commands](commands.md) shows how to use them, \
with examples. An unknown option is refused with the nearest one. \
[Exit codes](commands.md#exit-codes).
"""
_LINK = re.compile(r"\[`(\w+)`\]\((\S+?)\)")


def page() -> str:
    """All verbs, in the order of `slurm-jobs --help`."""
    more = linked_pages()
    return INTRO + "".join(section(verb, more.get(verb, "")) for verb in VERBS)


def section(verb: str, more: str) -> str:
    """A verb's words, usage and options."""
    parser = verb_parser(verb)
    actions = [a for a in parser._actions if a.dest != "help" and a.help != argparse.SUPPRESS]  # noqa: SLF001
    words = VERBS[verb]
    lines = [f"\n## {verb}\n", f"{words[0].upper()}{words[1:]}."]
    if more:
        lines[-1] += f" More: [{verb}]({more})."
    lines += ["", "```text", usage(verb, actions), "```", ""]
    rows = [(f"`{shown(action)}`", action.help or default(action)) for action in actions]
    return "\n".join(lines) + "\n" + source_docs.table(("takes", "meaning"), rows)


def verb_parser(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    parser = build_parser([verb])
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    chosen: argparse.ArgumentParser = verbs.choices[verb]
    return chosen


def usage(verb: str, actions: list[argparse.Action]) -> str:
    """One line, whatever the version of Python makes of it."""
    given = [a for a in actions if not a.option_strings]
    options = [a for a in actions if a.option_strings]
    words = [f"[{shown(a)}]" if a.nargs == "?" else shown(a) for a in given]
    words += [f"[{shown(a)}]" + ("..." if is_repeated(a) else "") for a in options]
    return " ".join(["slurm-jobs", verb, *words])


def shown(action: argparse.Action) -> str:
    """`--set KEY=VALUE`, `RUN`."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"{value} ..." if action.nargs == "+" else value
    value = f"[{value}]" if action.nargs == "?" else value
    return f"{', '.join(sorted(action.option_strings, key=len, reverse=True))} {value}".strip()


def is_repeated(action: argparse.Action) -> bool:
    """Whether it may be given several times."""
    return isinstance(action.default, list)


def default(action: argparse.Action) -> str:
    """Of what has no help of its own."""
    return f"default: `{action.default}`" if action.default else ""


def linked_pages() -> dict[str, str]:
    """Return the page that docs/reference/commands.md links for each verb."""
    text = (Path(__file__).parents[1] / "reference/commands.md").read_text(encoding="utf-8")
    pages = dict(_LINK.findall(text))
    return {
        verb: f"commands.md{page}" if page.startswith("#") else page for verb, page in pages.items()
    }
