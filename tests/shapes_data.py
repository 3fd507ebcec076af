"""A real data set of the demo's pictures, made in the test's own process."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

from slurm_jobs.formats.records.task_context import ParentStage
from tests.contexts import make_context

ROOT = Path(__file__).parents[1]


def parent(stage: str, root: Path, run: str | None = None) -> ParentStage:
    """A stage before, whose output is `root/STAGE`."""
    return ParentStage(stage=stage, run=run or stage, output_dir=root / stage, num_slices=1)


def lengthen_answers(manifest: Path, length_of: Callable[[int], int]) -> None:
    """Each answer gets so many words more, by the number of its row."""
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for index, row in enumerate(rows):
        row["messages"][1]["content"][0]["text"] += " ring" * length_of(index)
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_shapes(
    root: Path, *, num_train: int, num_heldout: int, length_of: Callable[[int], int] = lambda _: 0
) -> Path:
    """`root` with `render/` (manifests, processor), `preprocess/` and `consolidate/`."""
    from pipeline.consolidate.stage import run as consolidate
    from pipeline.preprocess.stage import run as preprocess

    spec = importlib.util.spec_from_file_location("shapes_demo", ROOT / "configs/shapes_demo.py")
    assert spec is not None
    assert spec.loader is not None
    shapes_demo = importlib.util.module_from_spec(spec)
    sys.modules["shapes_demo"] = shapes_demo
    spec.loader.exec_module(shapes_demo)
    numbers = {"num_train": num_train, "num_heldout": num_heldout, "num_broken": 0}
    shapes_demo.render({**numbers, "max_side_px": 80}, make_context("render", root))
    render_dir = root / "render"
    lengthen_answers(render_dir / "train.jsonl", length_of)
    config = {"manifest": f"{render_dir}/train.jsonl", "processor": f"{render_dir}/processor"}
    preprocess(config, make_context("preprocess", root, config=config))
    consolidate({}, make_context("consolidate", root, parents=(parent("preprocess", root),)))
    return root
