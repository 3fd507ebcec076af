"""Command line: finds the verb, parses its arguments, runs it and ends with its exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import FileError, SlurmJobsError, SpecError
from slurm_jobs.cli.command_parser import VERBS, build_parser, module_of
from slurm_jobs.cli.exit_codes import INTERRUPTED_EXIT_CODE

if TYPE_CHECKING:
    from slurm_jobs.cli.terminal.dispensable_output import DispensableOutput

ACTING_VERBS = frozenset({"submit", "run", "resume", "cancel", "clean", "probe", "doctor", "tune"})
"""Commands that finish their work even if the reader of their output has gone."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run the command, and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in ([], ["help"]):
        words = ["--help"]
    elif words[0] == "help" and words[1] in VERBS:
        words = [words[1], "--help"]
    if "_ARGCOMPLETE" in os.environ:  # TAB in a shell with our completion script
        from slurm_jobs.cli.tab_completion.completion import complete

        return complete(build_parser, VERBS)
    try:
        code = _run(words)
    except KeyboardInterrupt as stop:
        what_is_left = f": {stop}" if str(stop) else ""
        print(f"\ninterrupted{what_is_left}", file=sys.stderr)
        code = INTERRUPTED_EXIT_CODE
    sys.exit(code)


def _run(words: Sequence[str]) -> int:
    from slurm_jobs.cli.terminal.dispensable_output import make_dispensable
    from slurm_jobs.cli.terminal.guarded_streams import guard_streams, open_missing_streams

    open_missing_streams()
    verb = next((word for word in words if word in VERBS), None)
    os.umask(0o077)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a bar
    guard_streams()  # before an error message prints typed, perhaps pasted, words
    make_dispensable("stderr")  # a message that cannot be printed must not change the exit code
    options = build_parser([verb] if verb else []).parse_args(words)
    output = make_dispensable("stdout") if options.verb in ACTING_VERBS else None
    try:
        _check_working_dir()
        code: int = getattr(module_of(options.verb), f"run_{options.verb}")(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _discard_output()
        return 0
    except (SlurmJobsError, OSError) as error:
        as_json = getattr(options, "json", False)
        return _print_error(_as_ours(error), as_json=as_json, output=output)
    if output is None or output.loss is None:
        return code
    print(
        f"slurm-jobs: standard output: {output.loss.strerror}; the command went on to its end, "
        "so check `slurm-jobs runs` before you run it again",
        file=sys.stderr,
    )
    return code or FileError.exit_code


def _check_working_dir() -> None:
    """Raise FileError if it was removed: relative paths mean nothing in it."""
    try:
        os.stat(os.getcwd())  # noqa: PTH109, PTH116 - Path.cwd() is the same, and imported later
    except OSError as error:
        message = (
            f"the working directory cannot be used ({error.strerror}): it was removed, or its file "
            "system is not mounted; `cd` to an existing folder and run the command again"
        )
        raise FileError(message) from error


def _as_ours(error: SlurmJobsError | OSError) -> SlurmJobsError:
    if isinstance(error, SlurmJobsError):
        return error
    where = f"{error.filename}: " if error.filename else ""
    what = f"{where}{error.strerror or error}"
    return FileError(f"{what}; fix that and run the command again, written files stay intact")


def _discard_output() -> None:
    """Discard all output from now on, including what is buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(error: SlurmJobsError, *, as_json: bool, output: DispensableOutput | None) -> int:
    """Print an error, and return the exit code.

    If standard output fails (a full disk, a reader that has left), the error is printed on standard
    error, also with `--json`. Earlier output is flushed here, because a failure when Python exits
    would change the exit code. `output` is standard output if its failures are not raised.
    """
    from slurm_jobs.cli.terminal.console import print_json
    from slurm_jobs.cli.terminal.shown_paths import with_short_path

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
    if output is not None:
        broken = output.failure
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
