"""Data sets of other tools through the whole chain: `init`, `run`, and the samples of the shards.

`python -m tests.other_tools.chain` trains a small model on each, in some twenty seconds, and prints
a line that says whether the run completed, its steps, and whether its shards teach these answers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from tests.other_tools.data_sets import DATA_SETS, ToolData
from tests.other_tools.learned import (
    init_spec,
    learned_texts,
    qwen_processor,
    tokens_by_row,
    with_ends,
    write_model,
)


def main() -> None:
    """Run the chain on all data sets."""
    with tempfile.TemporaryDirectory() as place:
        model = write_model(Path(place) / "model")
        for write in DATA_SETS:
            folder = Path(place) / write.__name__
            data = write(folder)
            print(f"{data.tool:<14} {write.__name__:<24} {_chain(data, folder, model)}", flush=True)


def _chain(data: ToolData, folder: Path, model: Path) -> str:
    os.chdir(folder)
    spec = init_spec(data, folder, model)
    command = [sys.executable, "-m", "slurm_jobs", "run", str(spec)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    (run,) = (folder / "runs").iterdir()
    shards = sorted(run.glob("data/consolidate/**/*.tar"))
    tokenizer = qwen_processor().tokenizer
    learned = [learned_texts(tokens, tokenizer) for tokens in tokens_by_row(shards)]
    answers = "right answers" if learned == with_ends(data.learned) else f"learned {learned}"
    steps = read_steps(steps_path(run / "timing/train/s00000.a0001", 0)).steps
    return f"exit {ended.returncode}, {len(shards)} shards, {len(steps)} steps, {answers}"


if __name__ == "__main__":
    main()
