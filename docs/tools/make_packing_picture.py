"""Make the picture of rows in packing.md: `python docs/tools/make_packing_picture.py`.

Runs the shapes demo's renderer, writes a manifest of 3,000 chats about its pictures, as unlike in
length as collected ones are (a fifth are captions, a fifth have no picture), makes a data set of
it, and calls `slurm-jobs packing` for a small model. Writes `docs/images/packing.png` and prints
what the terminal shows in 80 columns. The times are this machine's.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
NUM_SAMPLES = 3000
SPEC = """\
name: chats
cluster: local
stages:
  preprocess:
    run: preprocess
    array: {num_slices: 2}
    config: {manifest: chats.jsonl, processor: PROCESSOR, max_tokens: 512}
  consolidate: {run: consolidate, after: preprocess}
  train:
    run: train
    after: consolidate
    resources: {tasks_per_node: 8}
    config:
      device: cpu
      num_steps: 1
      global_batch_size: 128
      num_compute_threads: 1
      batching: {kind: packed}
      model: {language: {num_layers: 2}}
"""


def main() -> None:
    """Make the data set, then the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command(folder, "init", ".")
        rendered = render(folder)
        lines = [json.dumps(row) for row in chats(rendered)]
        (folder / "chats.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        spec = SPEC.replace("PROCESSOR", str(rendered / "processor"))
        (folder / "chats.yaml").write_text(spec, encoding="utf-8")
        # The data set is whole when `consolidate` is; nothing is trained.
        command(
            folder, "run", "chats.yaml", "--set", "stages.train.after={consolidate: afternotok}"
        )
        picture = DOCS / "images" / "packing.png"
        shown = command(folder, "packing", "chats.yaml", "--image", str(picture))
    sys.stdout.write(shown)


def command(folder: Path, *words: str) -> str:
    """What `slurm-jobs` prints in a terminal of 80 columns.

    Raises:
        subprocess.CalledProcessError: its exit code is not 0.
    """
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(DOCS.parent)}
    called = [sys.executable, "-m", "slurm_jobs", *words]
    done = subprocess.run(
        called, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def render(folder: Path) -> Path:
    """Pictures and a processor; the folder that holds both."""
    spec = "name: shapes\ncluster: local\nstages:\n  render:\n    run: 'shapes_demo:render'\n"
    spec += "    config: {num_train: 500, num_heldout: 8, num_broken: 0, seed: 0}\n"
    (folder / "shapes.yaml").write_text(spec, encoding="utf-8")
    command(folder, "run", "shapes.yaml")
    return next(folder.glob("runs/shapes-*/data/render"))


def chats(rendered: Path) -> list[dict[str, Any]]:
    """Rows whose answers have lengths of a log-normal distribution, as those of chats have."""
    rng = random.Random(0)  # noqa: S311 - lengths, no secrets
    rows = [json.loads(line) for line in (rendered / "train.jsonl").open(encoding="utf-8")]
    made = []
    for number in range(NUM_SAMPLES):
        kind = rng.choice(["caption", "text", "chat", "chat", "chat"])
        row = rng.choice(rows)
        paths = [str(rendered / path) for path in row["images"]]
        num_sentences = 1 if kind == "caption" else min(40, round(rng.lognormvariate(2.0, 0.8)))
        answer = " ".join(["a large red circle."] * max(1, num_sentences))
        images = [] if kind == "text" else paths
        content = [{"type": "image"} for _ in images] + [{"type": "text", "text": "Describe it."}]
        messages = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": answer},
        ]
        made.append({"id": str(number), "images": images, "messages": messages})
    return made


if __name__ == "__main__":
    main()
