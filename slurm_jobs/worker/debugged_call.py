"""Call of a stage's function under Python's debugger, without records of how it ends."""

from __future__ import annotations

import os
import pdb  # noqa: T100 - for whoever asks for a debugger
import sys
import traceback
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import StageStoppedError
from slurm_jobs.formats.records.task_context import TaskContext, read_context
from slurm_jobs.worker.call import StageFunction, call_function, find_function, result_text

_HELP = "`up` and `down` move between the calls, `p NAME` prints a value, `q` leaves the debugger."


def debug_stage(context_path: Path, *, stops_first: bool) -> int:
    """Call the function; at an exception or Ctrl-C open the debugger where it was raised.

    Args:
        context_path: file with the context.
        stops_first: open the debugger before the first line of the function, too.

    Returns:
        Exit code: 0 if the function returned a valid result.
    """
    os.umask(0o077)
    context, run = read_context(context_path), os.environ["SLURM_JOBS_ENTRY_POINT"]
    try:
        if stops_first:
            returned: list[Any] = []
            debugger = pdb.Pdb(skip=[__name__])  # so that it stops first in the stage's function
            debugger.runcall(_call, find_function(run), context, returned)
            if not returned:
                print("left before the function returned", flush=True)
                return 1
            (result,) = returned
        else:
            result = call_function(run, context)
        print(f"the function returned {result_text(run, result, context)}", flush=True)
    except StageStoppedError as error:
        print(f"the function stopped: {error}", flush=True)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - all that the user looks for
        traceback.print_exception(error)
        print(f"\nThe debugger is where this was raised. {_HELP}", file=sys.stderr, flush=True)
        pdb.post_mortem(error.__traceback__)
        return 1
    return 0


def _call(function: StageFunction, context: TaskContext, returned: list[Any]) -> None:
    """Append what the function returns; a debugger that is left ends this call without a word."""
    returned.append(function(dict(context.config), context))
