"""What is compared of a data set and a model before a step is made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from pipeline.data.dataset import open_dataset
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import write_kind
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.train.conftest import TINY_MODEL


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


@pytest.fixture(scope="module")
def longest(demo_data):
    return int(open_dataset(demo_data / "consolidate").index.num_tokens.max())


def small(max_positions: int) -> dict:
    return {**TINY_MODEL, "language": {**TINY_MODEL["language"], "max_positions": max_positions}}


def test_samples_longer_than_the_positions_of_the_model_are_refused(longest, make_train_run):
    words = rf"the longest sample has {longest} tokens, but the language model has 10 positions"
    with pytest.raises(StageConfigError, match=words) as caught:
        make_train_run(model=small(10)).run_here()
    remedy = f"preprocess with max_tokens: 10, or set model.language.max_positions: {longest}"
    assert remedy in str(caught.value)


@pytest.mark.parametrize("is_warned", [True, False])
def test_answers_of_the_evaluation_beyond_the_positions_are_warned_of(
    longest, heldout, make_train_run, is_warned
):
    positions = longest if is_warned else 4096
    evaluate = {"manifest": heldout, "max_new_tokens": 2}
    run = make_train_run(model=small(positions), num_steps=1, evaluate=evaluate)
    result = run.run_here()
    assert result["num_steps"] == 1
    words = f"the language model has {positions:,} positions"
    assert is_warned == any(words in warning for warning in result["preflight"]["warnings"])


def test_the_limit_of_a_folder_is_named_by_its_file(plain, make_train_run, tmp_path):
    model = shutil.copytree(plain.output_dir / "model", tmp_path / "model")
    file = model / "config.json"
    values = json.loads(file.read_text())
    values["language"]["max_position_embeddings"] = 12
    file.write_text(json.dumps(values))
    run = make_train_run(model={"path": str(model)})
    with pytest.raises(StageConfigError, match=r"has 12 positions .* in a copy of .*config\.json"):
        run.run_here()


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
