"""Records of torch's flight recorder, written whenever the rank's Python stacks are.

Frames in the files next to this one mean a wait for other ranks (`slurm_jobs.worker.stacks`), and
the thread that checks for requests is never in one.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from torch._C import _distributed_c10d as c10d

from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.formats.records.heartbeat import is_quiet, stacks_path

FLIGHT_PREFIXES = {"_dump_nccl_trace": "flight-", "_dump_fr_trace": "gloo-flight-"}
"""Files of torch's flight recorder, by its function; the rank's number follows, as
`torchfrtrace` expects. NCCL's watchdog also writes to the first on a timeout."""
_POLL_S = 5.0
"""The file is on a shared folder."""
_QUIET_POLL_S = 1.0
_POLLS_A_TIMEOUT = 20


def write_flights_on_request(task_dir: Path, rank: int, *, timeout_s: float) -> None:
    """Write torch's flight records each time this rank's stacks are written.

    A thread watches the size of the stack file, because the handler that writes it cannot run
    Python. It checks more often if the rank makes no progress: the rank is ended soon after the
    request.
    """
    poll_s = max(_QUIET_POLL_S, min(_POLL_S, timeout_s / _POLLS_A_TIMEOUT))
    stacks = stacks_path(task_dir, rank)
    if not stacks.exists():  # this process is not a rank of the supervisor
        return

    def follow(size: int) -> None:
        while True:
            time.sleep(_QUIET_POLL_S if is_quiet() else poll_s)
            with suppress(OSError):
                if stacks.stat().st_size != size:
                    size = stacks.stat().st_size
                    write_flights(task_dir, rank)

    # The size is read here, so that a request is seen that comes before the thread first runs.
    size = stacks.stat().st_size
    threading.Thread(target=follow, args=(size,), name="flight-recorder", daemon=True).start()


def write_flights(task_dir: Path, rank: int) -> None:
    """Write the last collectives of this rank, pickled, one file per recorder.

    Their stacks are added in a second pass: looking up source lines takes seconds, and the
    process may be ended meanwhile.

    Raises:
        OSError: a file cannot be written.
    """
    for has_stacks in (False, True):
        for name, prefix in FLIGHT_PREFIXES.items():
            dump = getattr(c10d, name, None)  # a build without CUDA has no NCCL
            if dump is not None:
                data = dump(includeStackTraces=has_stacks)
                write_bytes_atomic(task_dir / f"{prefix}{rank}", data)
