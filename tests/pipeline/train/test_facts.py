"""What is refused of a data set before a model is built for it."""

import json
from pathlib import Path

import pytest
from PIL import Image

from slurm_jobs.shared.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import write_kind


def write_tiled_dataset(folder: Path) -> Path:
    (folder / "source").mkdir()
    Image.new("RGB", (60, 40)).save(folder / "source" / "a.png")
    says = {"role": "assistant", "content": "x"}
    asked = {"role": "user", "content": [{"type": "image", "path": "a.png"}]}
    manifest = folder / "source" / "rows.jsonl"
    manifest.write_text(json.dumps({"messages": [asked, says]}) + "\n")
    processor = write_kind("smolvlm", folder / "processor")
    config = {"manifest": str(manifest), "processor": str(processor)}
    _, parts_dir = run_preprocess(folder / "prep", config)
    return run_consolidate(folder / "set", parts_dir)[1]


def test_images_that_the_model_does_not_take_are_refused_before_anything_is_copied(
    make_train_run, tmp_path
):
    dataset_dir = write_tiled_dataset(tmp_path)
    run = make_train_run(dataset=str(dataset_dir))
    words = "images are tiled; model type small_vlm needs square ones of one size"
    words = rf"^dataset \({dataset_dir}\): the data set's {words}"
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
    assert not list(run.root.rglob("shard-*.tar"))
