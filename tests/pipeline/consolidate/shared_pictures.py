"""Rows that share pictures, so that a held-out picture is in several rows."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.pipeline.build import write_image

NUM_PICTURES = 24
SHARE = 0.35
"""Share that holds out some of these pictures, and leaves some."""
Rows = list[list[str]]


def write_rows(folder: Path, rows: Rows) -> Path:
    """A manifest of conversations about some pictures each; every second one exists twice."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(NUM_PICTURES):
        # under two names the bytes of one file
        write_image(folder / f"{number}.png", (number // 2 * 20, 90, 200 - number // 2 * 10))
    lines = []
    for number, names in enumerate(rows):
        asked = [*({"type": "image", "image": name} for name in names), "What is this?"]
        content = [item if isinstance(item, dict) else {"text": item} for item in asked]
        turns = [{"role": "user", "content": content}]
        turns.append({"role": "assistant", "content": f"answer {number}"})
        lines.append(json.dumps({"messages": turns}))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "rows.jsonl"


def random_rows(seed: int) -> Rows:
    generator = random.Random(seed)
    counts = generator.choices([0, 1, 2, 3], [1, 6, 2, 1], k=60)
    return [[f"{generator.randrange(NUM_PICTURES)}.png" for _ in range(n)] for n in counts]
