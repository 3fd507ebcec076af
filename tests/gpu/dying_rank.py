"""One rank of the `train` stage that may kill itself when a step begins.

Usage: python -m tests.gpu.dying_rank CONTEXT_JSON RESULT_JSON [STEP]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from unittest import mock

from pipeline.timing import StepRecorder
from pipeline.training import run
from slurm_jobs.common.context import read_context


def main() -> None:
    """Train."""
    context = read_context(Path(sys.argv[1]))
    last = int(sys.argv[3]) if len(sys.argv) > 3 else None
    start_step = StepRecorder.start_step

    def start_or_die(self: StepRecorder, step: int) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        start_step(self, step)

    with mock.patch.object(StepRecorder, "start_step", start_or_die):
        result = run(context.config, context)
    Path(sys.argv[2]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
