"""Command line: finds the verb, parses its arguments, runs it and ends with its exit code.

Exit codes: 0 fine, 1 the run failed, 2 the input is wrong, 3 the scheduler is unreachable or a file
cannot be read or written, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import NoReturn

from slurm_jobs import __version__
from slurm_jobs.shared.errors import FileError, SlurmJobsError, SpecError

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

_MODULES = {
    **dict.fromkeys(("check", "plan", "schema"), "plan"),
    **dict.fromkeys(("status", "watch", "run"), "status"),
    **dict.fromkeys(("report", "compare", "scaling", "profile"), "report"),
    **dict.fromkeys(("verify", "packing", "samples"), "data"),
    **dict.fromkeys(("probe", "doctor"), "nodes"),
}
"""Modules of this package that have several verbs; the others are named as their verb."""

WITHOUT_JSON = frozenset({"logs", "debug", "schema", "completion"})
INTERRUPTED_EXIT_CODE = 130

ACTING_VERBS = frozenset({"submit", "run", "resume", "cancel", "clean", "probe", "doctor", "tune"})
"""Commands that finish their work even if the reader of their output has gone."""

_NO_VERB = re.compile(r"argument VERB: invalid choice: '([^']*)'")
_NO_OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
"""argparse's message for them."""
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")

_EPILOG = """\
RUN is a run folder, the start of a run's id, or a spec file (its newest run);
left out, it is the newest run in ./runs (or $SLURM_JOBS_RUNS_DIR).

Exit codes: 0 success, 1 the run failed, 2 wrong input, 3 the scheduler could
not be reached or a file not be read or written, 130 Ctrl-C.
"""


class _Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest command or option for an unknown word."""

    verb: _Parser | None = None
    """Parser of the command in the arguments; only the parser of all commands has one."""

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
    unknown = ", ".join(f"no option `{option}`{_near(option, known)}" for option in options)
    return unknown or f"unexpected argument `{' '.join(words)}`"


def _near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean `x`?` for the nearest known word, or an empty string."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _module_of(verb: str) -> ModuleType:
    return importlib.import_module(f"slurm_jobs.cli.{_MODULES.get(verb, verb)}")


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
            getattr(_module_of(verb), f"add_{verb}_arguments")(command)
            if verb not in WITHOUT_JSON:
                command.add_argument("--json", action="store_true", help="print the result as JSON")
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            command.epilog = "\n".join(filter(None, [command.epilog, examples_text(verb)]))
            parser.verb = command
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run the command, and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words = ["--help"] if words in ([], ["help"]) else words
    if "_ARGCOMPLETE" in os.environ:  # TAB in a shell with our completion script
        from slurm_jobs.cli.completion import complete

        return complete(build_parser, VERBS)
    try:
        code = _run(words)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        code = INTERRUPTED_EXIT_CODE
    sys.exit(code)


def _run(words: Sequence[str]) -> int:
    from slurm_jobs.cli.options import guard_streams, keep_on_writing

    verb = next((word for word in words if word in VERBS), None)
    os.umask(0o077)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a bar
    guard_streams()  # before an error message prints typed, perhaps pasted, words
    options = build_parser([verb] if verb else []).parse_args(words)
    if options.verb in ACTING_VERBS:
        keep_on_writing()
    try:
        os.stat(os.getcwd())  # noqa: PTH109, PTH116 - Path.cwd() is the same, and imported later
    except OSError as error:  # relative paths mean nothing in a folder that was deleted
        problem = (
            f"the working directory cannot be used ({error.strerror}): it was removed, or its file "
            "system is not mounted; `cd` to an existing folder and run the command again"
        )
        return _print_error(FileError(problem), as_json=getattr(options, "json", False))
    try:
        code: int = getattr(_module_of(options.verb), f"run_{options.verb}")(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _discard_output()
        return 0
    except (SlurmJobsError, OSError) as error:
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            what = f"{where}{error.strerror or error}"
            message = f"{what}; fix that and run the command again, written files stay intact"
            error = FileError(message)
        return _print_error(error, as_json=getattr(options, "json", False))
    return code


def _discard_output() -> None:
    """Discard all output from now on, including what is buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(error: SlurmJobsError, *, as_json: bool) -> int:
    """Print an error, and return the exit code.

    If standard output fails (a full disk, a reader that has left), JSON is printed on standard
    error. Earlier output is flushed here, because a failure when Python exits would change the exit
    code.
    """
    from slurm_jobs.cli.options import print_json, with_short_path

    problems = error.problems if isinstance(error, SpecError) else ()
    broken: OSError | None = None
    try:
        if as_json:
            listed = [
                {"file": p.file, "line": p.line, "column": p.column, "message": p.message}
                for p in problems
            ]
            print_json({"error": str(error), "problems": listed})
        sys.stdout.flush()
    except OSError as cause:
        _discard_output()
        broken = cause
    if broken is not None or not as_json:
        for problem in problems:
            print(with_short_path(problem), file=sys.stderr)
        number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''} found"
        is_spec = isinstance(error, SpecError)
        print(number if is_spec else f"slurm-jobs: {error}", file=sys.stderr)
    if broken is None or isinstance(broken, BrokenPipeError):
        return error.exit_code
    if not isinstance(error, FileError):
        print(f"slurm-jobs: standard output: {broken.strerror}", file=sys.stderr)
    return FileError.exit_code


# The examples at the end of each verb's `--help`; a test parses every one.


_WIDTH = 80
_INDENT = "  "

_DATED = "captions-20261121-080611-5b9e"

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "init": (
        ("slurm-jobs init", "asks what it must know"),
        ("slurm-jobs init --data photos --model models/vlm --yes", "asks nothing"),
        ("slurm-jobs init specs --recipe demo", "a recipe, into ./specs"),
        ("slurm-jobs init --local --recipe all", "all recipes, for this machine"),
    ),
    "check": (
        ("slurm-jobs check captions.yaml", "asks no scheduler"),
        ("slurm-jobs check captions.yaml --cluster", "also what the cluster would refuse"),
        ("slurm-jobs check captions.yaml --set stages.train.resources.nodes=4", ""),
    ),
    "plan": (
        ("slurm-jobs plan captions.yaml", "jobs and batch scripts"),
        ("slurm-jobs plan captions.yaml --no-scripts --limit 500", "the jobs alone"),
        ("slurm-jobs plan captions.yaml --explain", "what a resume would run again, and why"),
    ),
    "submit": (
        ("slurm-jobs submit captions.yaml --limit 500", "the whole chain on a few samples"),
        ("slurm-jobs submit captions.yaml", "all of it"),
        ("slurm-jobs submit captions.yaml --set stages.train.config.num_epochs=1", ""),
    ),
    "run": (
        ("slurm-jobs run configs/demo.yaml", "from pictures to a report, on this machine"),
        ("slurm-jobs run captions.yaml --limit 500", ""),
    ),
    "runs": (
        ("slurm-jobs runs", "in ./runs, or $SLURM_JOBS_RUNS_DIR"),
        ("slurm-jobs runs --dir /work/runs --number 5", ""),
        ("slurm-jobs runs --since 7d --status failed", "of the last seven days"),
        ("slurm-jobs runs --name 'captions*' --size", "and the space that they take"),
    ),
    "note": (
        ("slurm-jobs note captions-20261121 baseline, learning rate 1e-4", ""),
        ("slurm-jobs note captions-20261121", "prints it"),
        ("slurm-jobs note captions-20261121 --remove", ""),
    ),
    "status": (
        ("slurm-jobs status", "of the newest run"),
        ("slurm-jobs status captions.yaml", "of the newest run of that spec"),
        ("slurm-jobs status captions-20261121 --json", "by the start of the run's id"),
    ),
    "watch": (
        ("slurm-jobs watch", "the newest run; Ctrl-C only stops watching"),
        (f"slurm-jobs watch runs/{_DATED}", ""),
    ),
    "debug": (
        ("slurm-jobs debug captions embed", "the first slice that failed"),
        ("slurm-jobs debug captions embed --slice 7 --stop", "stop before its first line"),
        ("slurm-jobs debug captions embed --update-code", "your code as it is now"),
    ),
    "logs": (
        ("slurm-jobs logs", "of what failed, or runs"),
        ("slurm-jobs logs train --rank 0 --follow", "of the newest run"),
        ("slurm-jobs logs captions-20261121 preprocess --failed --tail 20", ""),
        ('slurm-jobs logs --grep "out of memory"', "in all stages"),
    ),
    "resume": (
        ("slurm-jobs resume --dry-run", "what would run, and why"),
        ("slurm-jobs resume", "run it"),
        ("slurm-jobs resume --again preprocess:0-3,7", "also what is complete"),
        (f"slurm-jobs resume runs/{_DATED} --set stages.train.resources.mem_gb=64", ""),
    ),
    "cancel": (
        ("slurm-jobs cancel", "the newest run; asks first"),
        (f"slurm-jobs cancel runs/{_DATED} --stage train --yes", ""),
    ),
    "clean": (
        ("slurm-jobs clean --older-than 30d --dry-run", "what would be removed"),
        (f"slurm-jobs clean runs/{_DATED}", "parts, checkpoints; asks first"),
        ("slurm-jobs clean --older-than 12w --keep report,model,metrics", ""),
        ("slurm-jobs clean captions-20261121 --all", "the whole run"),
    ),
    "report": (
        ("slurm-jobs report", "of the newest run"),
        ("slurm-jobs report captions.yaml --epochs 3", "and what 3 epochs would take"),
        ("slurm-jobs report --export steps.csv", "every step record, too"),
        ("slurm-jobs report --share captions.html", "a page for colleagues"),
    ),
    "compare": (
        ("slurm-jobs compare slow-20261121 fast-20261122", ""),
        ("slurm-jobs compare a1,a2,a3 b1,b2,b3", "repeats tell more"),
    ),
    "scaling": (
        ("slurm-jobs scaling one-gpu two-gpus four-gpus", ""),
        ("slurm-jobs scaling a1 a2 b1 b2 --warmup-steps 20", "repeats tell more"),
    ),
    "tune": (
        ("slurm-jobs tune captions.yaml --budget 30", "minutes for all trials"),
        (f"slurm-jobs tune captions.yaml --data runs/{_DATED}", "its data set"),
        ("slurm-jobs tune captions.yaml --out tuned.yaml", "where the new spec goes"),
    ),
    "profile": (
        ("slurm-jobs profile", "of the newest run"),
        ("slurm-jobs profile captions-20261121 --rank 3 --operators 30", ""),
    ),
    "verify": (
        ("slurm-jobs verify", "the data sets of the newest run"),
        (f"slurm-jobs verify runs/{_DATED} --stage consolidate", ""),
        ("slurm-jobs verify /data/captions --json", "a copy, wherever it came from"),
    ),
    "packing": (
        ("slurm-jobs packing captions.yaml", "its newest run's data set, its model"),
        (
            "slurm-jobs packing captions.yaml --set stages.train.config.batching.max_tokens=8192",
            "",
        ),
        ("slurm-jobs packing captions.yaml --image packing.png", "a picture, too"),
        ("slurm-jobs packing /data/captions --max-tokens 4096", "a data set without a spec"),
    ),
    "samples": (
        ("slurm-jobs samples", "three samples of the newest run, and the audit"),
        ("slurm-jobs samples captions.yaml --key 149 --key 7", "these rows of the manifest"),
        ("slurm-jobs samples --random 1 --num 50 --html samples.html", "a page with pictures"),
        ("slurm-jobs samples /data/captions --num 0 --limit 1000", "the audit of some alone"),
    ),
    "probe": (
        ("slurm-jobs probe captions.yaml", "two nodes as its training has them"),
        ('slurm-jobs probe captions.yaml --nodelist "gpu[01-04]" --nodes 4', ""),
        ("slurm-jobs probe probe-20261121", "what it measured, once more"),
    ),
    "doctor": (
        ("slurm-jobs doctor", "this machine, its Slurm, and a short job on its nodes"),
        ("slurm-jobs doctor captions.yaml --drill", "also test a requeue"),
        ("slurm-jobs doctor captions.yaml --no-nodes --all", "no job; all that is well, too"),
    ),
    "schema": (
        ("slurm-jobs schema", "of specs"),
        ("slurm-jobs schema --profile", "of cluster profiles"),
    ),
    "completion": (
        ("slurm-jobs completion bash", ""),
        ("slurm-jobs completion zsh", ""),
        ("slurm-jobs completion fish", ""),
    ),
}
"""Commands by verb, each with a comment if it is not obvious."""


def examples_text(verb: str) -> str:
    """Return the end of a command's help, in 80 columns; empty if it has no examples."""
    examples = EXAMPLES.get(verb, ())
    with_words = [len(command) for command, words in examples if words]
    column = len(_INDENT) + max(with_words, default=0) + 2
    lines = []
    for command, words in examples:
        line = f"{_INDENT}{command}"
        if words and column + len(words) <= _WIDTH:
            line = f"{line:{column}}{words}"
        elif words:
            line = f"{line}\n{_INDENT * 3}{words}"
        lines.append(_broken(line) if len(line) > _WIDTH and "\n" not in line else line)
    return "\n".join(["examples:", *lines]) if lines else ""


def _broken(line: str) -> str:
    """Break a long command into two lines for the shell."""
    before, option, after = line.rpartition(" --")
    return f"{before} \\\n{_INDENT * 3}{option.strip()}{after}"
