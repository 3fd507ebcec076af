"""Parser of the command line: the table of verbs, their arguments, and help for a wrong word."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from slurm_jobs import __version__
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.cli.help_examples import examples_text

VERBS = {
    "init": "write a first spec and a cluster profile, for this cluster and your data",
    "check": "find all problems in a spec",
    "plan": "show the jobs of a spec without submitting them",
    "submit": "submit a spec's jobs and return at once",
    "run": "submit a spec's jobs and watch them until they end",
    "runs": "list runs",
    "note": "write a note on a run, which `runs` and `status` show",
    "status": "show the progress of a run",
    "watch": "show the progress of a run until it ends",
    "logs": "show, follow or search a run's logs",
    "debug": "call the function of a stage here, under Python's debugger",
    "resume": "submit what is missing of a run, and nothing else",
    "cancel": "cancel a run, or one of its stages",
    "clean": "remove what runs do not need any more, or whole runs",
    "report": "show where a run's time went and what to change",
    "compare": "test whether one run, or its repeats, is faster than another",
    "scaling": "show the speedup over runs with different numbers of GPUs",
    "tune": "try the settings that the report's findings name, and keep what is faster",
    "profile": "show computation, communication and idle time of profiled steps",
    "verify": "compare a data set with its index and checksums",
    "packing": "compare the padding and speed of each way of batching on a data set",
    "samples": "show decoded samples, and audit labels and images of a data set",
    "probe": "measure the speed of the nodes of a spec's training",
    "doctor": "find problems of a site, with remedies, before they cost an hour",
    "schema": "print the JSON Schema of specs, for editors",
    "completion": "print the completion script for bash, zsh or fish",
}
_PACKAGES = {
    **dict.fromkeys(("init", "check", "plan", "submit", "schema"), "specs"),
    **dict.fromkeys(("run", "runs", "note", "status", "watch", "debug"), "runs"),
    **dict.fromkeys(("resume", "cancel", "clean"), "runs"),
    **dict.fromkeys(("report", "compare", "scaling", "tune", "profile"), "reports"),
    **dict.fromkeys(("packing", "samples", "verify"), "data_sets"),
    **dict.fromkeys(("doctor", "probe"), "nodes"),
    "logs": "run_logs",
    "completion": "tab_completion",
}
"""Package of this one that has the verb in a module of the verb's name."""
_MODULE_NAMES = {"profile": "step_profile"}  # the standard library has a module `profile`
WITHOUT_JSON = frozenset({"logs", "debug", "schema", "completion"})
_NO_VERB = re.compile(r"argument VERB: invalid choice: '([^']*)'")
_NO_OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
"""argparse's message for them."""
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_EPILOG = """\
RUN is a run folder, the start of a run's id, or a spec file (its newest run);
left out, it is the newest run that you submitted from this folder, else the
newest in ./runs (or $SLURM_JOBS_RUNS_DIR).

Exit codes: 0 success, 1 the run failed, 2 wrong input, 3 the scheduler could
not be reached or a file not be read or written, 130 Ctrl-C.
"""


class _Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest command or option for an unknown word."""

    verb: _Parser | None = None
    """Parser of the command in the arguments; only the parser of all commands has one."""

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Parse the command line; in `help WORD`, where WORD is no verb, the wrong word is WORD."""
        words = list(sys.argv[1:] if args is None else args)
        if len(words) > 1 and words[0] == "help" and not words[1].startswith("-"):
            del words[0]
        return super().parse_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; see the class."""
        wrong = _NO_VERB.match(message)
        if wrong is not None:
            from slurm_jobs.cli.other_verbs import no_verb_text

            message = no_verb_text(wrong[1], VERBS)
        unknown = _NO_OPTION.match(message)
        if unknown is not None and self.verb is not None:
            self.verb.error(_not_taken(unknown[1].split(), self.verb))
        super().error(message)


def _not_taken(words: Sequence[str], verb: argparse.ArgumentParser) -> str:
    """Return `no option `--expotr`; did you mean `--export`?`; the usage above lists all."""
    # Words after unknown options are mostly their values.
    options = list(dict.fromkeys(w.partition("=")[0] for w in words if w.startswith("-")))
    known = _OPTION.findall(verb.format_usage())
    unknown = ", ".join(f"no option `{option}`{did_you_mean(option, known)}" for option in options)
    return unknown or f"unexpected argument `{' '.join(words)}`"


def module_of(verb: str) -> ModuleType:
    """Import the module that has the verb's functions."""
    return importlib.import_module(
        f"slurm_jobs.cli.{_PACKAGES[verb]}.{_MODULE_NAMES.get(verb, verb)}"
    )


def build_parser(verbs: Sequence[str]) -> _Parser:
    """Return the parser; only the commands in `verbs` get their arguments."""
    parser = _Parser(
        prog="slurm-jobs",
        description="From one YAML file to a fine-tuned vision-language model on Slurm,\n"
        "and a report that can be trusted.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"slurm-jobs {__version__}")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in VERBS.items():
        command = commands.add_parser(verb, help=text, description=text, allow_abbrev=False)
        if verb in verbs:
            getattr(module_of(verb), f"add_{verb}_arguments")(command)
            if verb not in WITHOUT_JSON:
                command.add_argument("--json", action="store_true", help="print the result as JSON")
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            command.epilog = "\n".join(filter(None, [command.epilog, examples_text(verb)]))
            parser.verb = command
    return parser
