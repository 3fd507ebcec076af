"""`slurm-jobs debug RUN STAGE`: call a stage's function here, under Python's debugger."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_jobs.base.processes.signal_handlers import handling
from slurm_jobs.base.texts.control_characters import plain
from slurm_jobs.cli.arguments import add_run
from slurm_jobs.cli.named_run import named_run


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("stage", metavar="STAGE", help="a stage that runs a function")
    parser.add_argument(
        "--slice",
        dest="slice_index",
        metavar="N",
        type=int,
        help="the slice; the first failed one by default",
    )
    parser.add_argument(
        "--stop", action="store_true", help="stop before the first line, not only at an exception"
    )
    parser.add_argument(
        "--update-code",
        action="store_true",
        help="call your code as it is now, not the copy in the run",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with the output")


def run_debug(options: argparse.Namespace) -> int:
    """Call the function and wait for its end; return its exit code.

    Raises:
        InputError: the slice cannot be called here.
    """
    from slurm_jobs.commands.debug import prepare_debugging
    from slurm_jobs.run.home import refuse_elsewhere
    from slurm_jobs.run_folder.paths import RunPaths
    from slurm_jobs.run_folder.run_records import read_meta

    run_dir = named_run(options.run)
    paths = RunPaths(run_dir)
    refuse_elsewhere(paths, read_meta(paths))  # the code in a run of another user is a program
    scratch = Path(tempfile.mkdtemp(prefix="slurm-jobs-debug-"))
    try:
        chosen = prepare_debugging(
            run_dir,
            options.stage,
            options.slice_index,
            scratch,
            takes_present_code=options.update_code,
            stops_first=options.stop,
        )
        script = scratch / "debug.sh"
        script.write_text(chosen.script)
        code = "your code as it is now" if options.update_code else "the code of the run"
        alone = f", alone instead of with {chosen.num_ranks} ranks" if chosen.num_ranks > 1 else ""
        text = (
            f"{chosen.stage} slice {chosen.slice_index}: calling its function as in attempt "
            f"{chosen.attempt}{alone}, with {code}; it writes to {chosen.output_dir}"
        )
        print(plain(text), file=sys.stderr, flush=True)
        # Ctrl-C is for the debugger. The handler, unlike SIG_IGN, is not inherited.
        with handling([signal.SIGINT], lambda _number, _frame: None):
            return min(abs(subprocess.run(["/bin/bash", str(script)], check=False).returncode), 125)
    finally:
        if not options.keep:
            shutil.rmtree(scratch, ignore_errors=True)
