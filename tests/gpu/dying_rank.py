"""One rank of the `train` stage that may kill itself when a step begins.

Usage: python -m tests.gpu.dying_rank CONTEXTS_JSON RESULT_JSON [STEP]
"""

from __future__ import annotations

import os
import signal
import sys
from unittest import mock

from pipeline.timing.recorder import StepRecorder
from tests.pipeline.train import rank_process


def main() -> int:
    """Train."""
    last = int(sys.argv[3]) if len(sys.argv) > 3 else None
    start_step = StepRecorder.start_step

    def start_or_die(self: StepRecorder, step: int) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        start_step(self, step)

    with mock.patch.object(StepRecorder, "start_step", start_or_die):
        return rank_process.main()


if __name__ == "__main__":
    sys.exit(main())
