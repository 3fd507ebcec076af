"""Command line: one file per command; each parses, calls the library, prints.

Exit codes: 0 fine, 1 the run failed, 2 the user's input is wrong, 3 the
scheduler could not be asked, or a file not be read or written, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from slurm_jobs import __version__
from slurm_jobs.common.errors import FileError, SlurmJobsError

VERBS = {
    "init": "write a first spec and a cluster profile, for this cluster and your data",
    "check": "find everything wrong with a spec",
    "plan": "show the jobs that a spec means, and submit nothing",
    "submit": "submit a spec's jobs and return at once",
    "run": "submit and watch to the end",
    "runs": "list runs",
    "status": "show how a run is doing",
    "watch": "show how a run is doing, until it ends",
    "logs": "show, follow or search a run's logs",
    "resume": "run what is missing of a run, and nothing else",
    "cancel": "cancel a run, or one of its stages",
    "report": "show where a run's time went and what to change",
    "compare": "test whether one run, or its repeats, is faster than another",
    "scaling": "show the speedup over runs with different numbers of GPUs",
    "tune": "try what the report's findings name, and keep what is surely faster",
    "profile": "show what profiled steps computed, communicated and idled",
    "verify": "compare a data set with its index and checksums",
    "packing": "draw what each way of batching pads on a data set, and time it",
    "samples": "show decoded samples, and audit labels and images of a data set",
    "probe": "measure what the nodes of a spec's training can do",
    "doctor": "find what would waste an hour on a site, and say what to do about it",
    "schema": "print the JSON Schema of specs, for editors",
    "completion": "print what lets bash, zsh or fish complete verbs, options, runs and specs",
}

INTERRUPTED_EXIT_CODE = 130

ACTING_VERBS = frozenset({"submit", "run", "resume", "cancel", "probe", "doctor", "tune"})
"""Commands that finish what they began, even if the reader of their output has left."""

_NO_VERB = re.compile(r"argument VERB: invalid choice: '([^']*)'")
_NO_OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
"""argparse's message for them."""
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")

_EPILOG = """\
RUN is a run folder, the start of a run's id, or a spec file (its newest run);
left out, it is the newest run in ./runs (or $SLURM_JOBS_RUNS_DIR).

Exit codes: 0 fine, 1 the run failed, 2 the input is wrong, 3 the scheduler
could not be asked, or a file not be read or written, 130 Ctrl-C.
"""


class _Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest command or option for an unknown word."""

    verb: _Parser | None = None
    """Parser of the command in the arguments; only the parser of all commands has one."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; see the class."""
        wrong = _NO_VERB.match(message)
        if wrong is not None:
            message = f"no verb `{wrong[1]}`{_near(wrong[1], VERBS)} (verbs: {', '.join(VERBS)})"
        unknown = _NO_OPTION.match(message)
        if unknown is not None and self.verb is not None:
            self.verb.error(_not_taken(unknown[1].split(), self.verb))
        super().error(message)


def _not_taken(words: Sequence[str], verb: argparse.ArgumentParser) -> str:
    """Return `no option `--expotr`; did you mean `--export`?`; the usage above lists all."""
    options = list(dict.fromkeys(w.partition("=")[0] for w in words if w.startswith("-")))
    if not options:
        return f"`{' '.join(words)}` is more than it takes"
    known = _OPTION.findall(verb.format_usage())
    # Words after unknown options are mostly their values.
    return ", ".join(f"no option `{option}`{_near(option, known)}" for option in options)


def _near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean `x`?` for the nearest known word, or an empty string."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


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
            importlib.import_module(f"slurm_jobs.cli.{verb}").add_arguments(command)
            _add_examples(command, verb)
            parser.verb = command
    return parser


def _add_examples(command: argparse.ArgumentParser, verb: str) -> None:
    from slurm_jobs.cli.examples import examples_text

    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "\n".join(filter(None, [command.epilog, examples_text(verb)]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run the command, and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:  # a TAB in a shell that has read the script of `completion`
        from slurm_jobs.cli.completion import complete

        return complete()
    try:
        code = _run(words)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        code = INTERRUPTED_EXIT_CODE
    sys.exit(code)


def _run(words: Sequence[str]) -> int:
    from slurm_jobs.cli.screen import guard_streams

    verb = next((word for word in words if word in VERBS), None)
    os.umask(0o077)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a bar
    guard_streams()  # before an error message prints typed, perhaps pasted, words
    options = build_parser([verb] if verb else []).parse_args(words)
    if options.verb in ACTING_VERBS:
        from slurm_jobs.cli.output import keep_on_writing

        keep_on_writing()
    module = importlib.import_module(f"slurm_jobs.cli.{options.verb}")
    code: int
    try:
        _require_working_dir()
        code = module.run(options)
        sys.stdout.flush()
    except SlurmJobsError as error:
        code = _tell(error, as_json=getattr(options, "json", False))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _print_to_nobody()
        code = 0
    except OSError as error:
        code = _tell(_as_ours(error), as_json=getattr(options, "json", False))
    return code


def _require_working_dir() -> None:
    """Raise FileError if the working folder has been deleted: relative paths mean nothing then."""
    try:
        os.stat(os.getcwd())  # noqa: PTH109, PTH116 - Path.cwd() is the same, and imported later
    except OSError as error:
        message = (
            f"the working directory cannot be used ({error.strerror}): it was removed, or its file "
            "system is away; `cd` to a folder that exists and type the same again"
        )
        raise FileError(message) from error


def _as_ours(error: OSError) -> FileError:
    """Convert a system error about a file, adding what to do."""
    where = f"{error.filename}: " if error.filename else ""
    return FileError(
        f"{where}{error.strerror or error}; fix that and run the command again, what was written "
        "stays intact"
    )


def _tell(error: SlurmJobsError, *, as_json: bool) -> int:
    """Print an error, and return the exit code.

    If standard output fails (a full disk, a reader that has left), JSON is printed on standard
    error. Earlier output is flushed here, because a failure when Python exits would change the exit
    code.
    """
    try:
        if as_json:
            print(_error_as_json(error), end="")
        sys.stdout.flush()
    except OSError as broken:
        _print_to_nobody()
        _print_error(error)
        if isinstance(broken, BrokenPipeError):
            return error.exit_code
        if not isinstance(error, FileError):
            print(f"slurm-jobs: standard output: {broken.strerror}", file=sys.stderr)
        return FileError.exit_code
    if not as_json:
        _print_error(error)
    return error.exit_code


def _print_to_nobody() -> None:
    """Discard all output from now on, including what is buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _error_as_json(error: SlurmJobsError) -> str:
    from slurm_jobs.common.errors import SpecError
    from slurm_jobs.common.files import dump_json
    from slurm_jobs.common.steering import plain_json

    problems = error.problems if isinstance(error, SpecError) else ()
    listed = [
        {"file": p.file, "line": p.line, "column": p.column, "message": p.message} for p in problems
    ]
    return plain_json(dump_json({"error": str(error), "problems": listed}))


def _print_error(error: SlurmJobsError) -> None:
    from slurm_jobs.cli.arguments import with_short_path
    from slurm_jobs.common.errors import SpecError

    if isinstance(error, SpecError):
        for problem in error.problems:
            print(with_short_path(problem), file=sys.stderr)
        number = len(error.problems)
        print(f"{number} problem{'s' if number > 1 else ''} found", file=sys.stderr)
    else:
        print(f"slurm-jobs: {error}", file=sys.stderr)
