"""Small folders of models with random weights, by the names that the recipes of configs/ use.

`python -m tests.end_to_end.recipe_models FOLDER` writes them, for a recipe on a machine without
GPUs: `--set stages.models.config.source=FOLDER`. They learn nothing worth having; what they show is
that a spec runs, and how its parts are timed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tests.pipeline.kinds import write_kind
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.models.tiny_towers import (
    write_image_processor,
    write_qwen2,
    write_siglip,
    write_tokenizer,
)


def write_recipe_models(root: Path) -> Path:
    """`vision` and `language` of a small VLM, `vlm` (Qwen3-VL), `qlora/vlm` (Qwen2.5-VL)."""
    write_image_processor(write_siglip(root / "vision"))
    write_tokenizer(write_qwen2(root / "language", tied=True, vocab_size=272))
    write_kind("qwen3_vl", write_tiny("qwen3_vl", root / "vlm"))
    write_kind("qwen2_5_vl", write_tiny("qwen2_5_vl", root / "qlora" / "vlm"))
    return root


def on_cpus(models: Path, **more: Any) -> list[str]:
    """Overrides of a recipe: these models, CPUs, one thread a rank, and `more` by their keys."""
    values = {
        "cluster": "clusters/local.yaml",
        "stages.models.config.source": models,
        "stages.preprocess.array.num_slices": 1,
        "stages.train.resources.gpus_per_node": 0,
        "stages.train.resources.gpu": "[]",
        "stages.train.resources.mem_gb": 4,
        "stages.train.resources.cpus_per_task": 1,
        "stages.train.config.device": "cpu",
        "stages.train.config.num_compute_threads": 1,
        **more,
    }
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def main() -> None:
    """Write them into the folder that is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    print(write_recipe_models(parser.parse_args().folder.resolve()))


if __name__ == "__main__":
    main()
