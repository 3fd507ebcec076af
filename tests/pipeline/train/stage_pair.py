"""One rank of two that make several attempts of the train stage, one after the other.

Usage: python stage_pair.py CONTEXTS_JSON RESULTS_JSON

The first file has a list of contexts, one an attempt. After each the export is moved to `kept.N`,
and the last checkpoint taken away, so that the next attempt goes on from the one before. On a CPU
accelerate can shard.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from pipeline.train import run
from slurm_jobs.formats.records.record_json import record_from_json
from slurm_jobs.formats.records.task_context import TaskContext
from tests.pipeline.train.strategies.accelerate_shim import sharding_on_cpu


def main() -> None:
    values = json.loads(Path(sys.argv[1]).read_text())
    with sharding_on_cpu():
        found = [attempt(record_from_json(TaskContext, each)) for each in values]
    Path(sys.argv[2]).write_text(json.dumps(found))


def attempt(context: TaskContext) -> dict[str, Any] | None:
    """The stage's result on rank 0."""
    result = run(context.config, context)
    if context.rank == 0:  # the other rank waits for it where they meet again
        kept = context.run_dir / f"kept.{context.attempt}"
        kept.mkdir()
        exported = [context.output_dir / name for name in ("model", "adapters")]
        for folder in filter(Path.exists, exported):
            shutil.move(folder, kept / folder.name)
        newest = max((context.output_dir / "checkpoints").glob("step-*"))
        shutil.rmtree(newest)
    return result


if __name__ == "__main__":
    main()
