"""How long a checkpoint stalls training: in the background, synchronous, and with torch alone.

    python -m benchmarks.checkpointing [--quick] [--json FILE]

Two ranks on the CPU shard a model of 10.6 million parameters with `fully_shard`; with AdamW's state
a checkpoint has 128 MB. The methods take turns in each round, and two steps follow the start of
each save. A stall is that of the slower rank. `dcp.save` and `dcp.async_save` are torch's calls as
a hand-written loop would use them: their files have no checksum, no record and no name that marks
them as complete. On a CPU, steps and saves compete for the same cores; on a GPU node they do not.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.table import Row, arguments, row, show

NUM_RANKS = 2
MOST_OF_SYNC = 0.5
"""Largest share of a synchronous save that the copy may take: memory copy against disk write."""


def measure(num_rounds: int) -> dict[str, dict[str, float]]:
    """Return each method's median `stall_s`, `step_s` (of steps during the save) and `whole_s`."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        options = [str(NUM_RANKS), str(reserved.getsockname()[1]), folder, str(num_rounds)]
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.checkpointing_ranks", str(rank), *options],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(NUM_RANKS)
        ]
        if any(process.wait() for process in started):
            message = "a rank of the benchmark failed: see above"
            raise RuntimeError(message)
        results = json.loads((Path(folder) / "found.json").read_text())
    return {
        way: {key: statistics.median(times[key] for times in rounds) for key in rounds[0]}
        for way, rounds in results.items()
    }


def rows_of(results: dict[str, dict[str, float]]) -> list[Row]:
    """Compare the stalls with each other and with torch's; show what a save costs besides."""

    def ms(way: str, key: str) -> float:
        return 1000 * results[way][key]

    return [
        row(
            "training pauses for a save: async",
            "ms",
            ms("async", "stall_s"),
            peer="sync",
            peer_value=ms("sync", "stall_s"),
            ratio_at_most=MOST_OF_SYNC,
        ),
        row(
            "training pauses for a save: async",
            "ms",
            ms("async", "stall_s"),
            peer="dcp.async_save",
            peer_value=ms("dcp.async_save", "stall_s"),
        ),
        row(
            "training pauses for a save: sync",
            "ms",
            ms("sync", "stall_s"),
            peer="dcp.save",
            peer_value=ms("dcp.save", "stall_s"),
        ),
        row(
            "a whole save while steps run: async",
            "ms",
            ms("async", "whole_s"),
            peer="dcp.async_save",
            peer_value=ms("dcp.async_save", "whole_s"),
        ),
        row(
            "a step during a save: async",
            "ms",
            ms("async", "step_s"),
            peer="no save",
            peer_value=ms("none", "step_s"),
        ),
    ]


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    results = measure(3 if options.quick else 15)
    show(rows_of(results), options, ["slurm-jobs", "torch"])


if __name__ == "__main__":
    main()
