"""Data sets that a model does not take, or whose processor has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import write_kind
from tests.pipeline.models.tiny import write_tiny


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


@pytest.mark.parametrize("kind", [None, "qwen2_vl"])
def test_images_that_the_model_does_not_take_are_refused_before_copying(
    make_train_run, tmp_path, kind
):
    dataset_dir = write_tiled_dataset(tmp_path)
    run = make_train_run(dataset=str(dataset_dir))
    words = (
        rf"^dataset \({dataset_dir}\): the data set's images are tiled; model type small_vlm needs "
        "square ones of one size"
    )
    if kind is not None:
        folder = write_tiny(kind, tmp_path / "model")
        run.config["model"] = {"type": "hugging_face", "path": str(folder)}
        words = r"images are tiled, .* qwen2_vl needs native ones"
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
    assert not list(run.root.rglob("shard-*.tar"))


@pytest.fixture
def dataset(demo_data: Path, tmp_path: Path) -> Path:
    return shutil.copytree(demo_data / "consolidate", tmp_path / "dataset")


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("tokenizer_config.json", "was changed"),
        ("processor_config.json", "is missing"),
        ("chat_template.json", "was added"),
    ],
)
def test_a_processor_file_changed_since_consolidate_ends_the_training(
    dataset, make_train_run, name, verb
):
    path = dataset / "processor" / name
    if verb == "is missing":
        path.unlink()
    else:
        path.write_text((path.read_text() if path.exists() else "{}") + "\n")
    run = make_train_run(dataset=str(dataset))
    with pytest.raises(StageConfigError, match=rf"/processor: {name} {verb} since `consolidate`"):
        run.run_here()
    assert not list(run.root.rglob("checkpoints"))


def test_a_data_set_of_an_older_version_is_compared_as_a_whole(dataset, make_train_run):
    file = dataset / "dataset.json"
    values = json.loads(file.read_text())
    del values["processor_sha256"]
    file.write_text(json.dumps(values))
    assert make_train_run(dataset=str(dataset), num_steps=1).run_here()["num_steps"] == 1
    template = dataset / "processor" / "tokenizer_config.json"
    template.write_text(template.read_text() + "\n")
    with pytest.raises(StageConfigError, match=r"/processor: files were changed, added or removed"):
        make_train_run(dataset=str(dataset)).run_here()
