"""What is compared of a data set and a model before a step is made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.data.format import read_dataset_info
from pipeline.data.index import open_index
from slurm_jobs.shared.errors import StageConfigError


@pytest.fixture
def dataset(demo_data: Path, tmp_path: Path) -> Path:
    return shutil.copytree(demo_data / "consolidate", tmp_path / "dataset")


def longest(dataset: Path) -> int:
    info = read_dataset_info(dataset)
    index = open_index(dataset / "index.arrow", info.index, num_samples=info.num_samples)
    return int(index.num_tokens.max())


def small(max_positions: int) -> dict:
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2}
    return {"vision": sizes, "language": sizes | {"max_positions": max_positions}}


def test_samples_longer_than_the_positions_of_the_language_model_are_refused(
    dataset, make_train_run
):
    most = longest(dataset)
    run = make_train_run(dataset=str(dataset), model=small(10))
    words = rf"the longest sample has {most} tokens, but the language model has 10 positions"
    with pytest.raises(StageConfigError, match=words) as caught:
        run.run_here()
    assert f"preprocess with max_tokens: 10, or set model.language.max_positions: {most}" in str(
        caught.value
    )
    run = make_train_run(dataset=str(dataset), model=small(most), num_steps=1)
    assert run.run_here()["num_steps"] == 1


def test_answers_of_the_evaluation_beyond_the_positions_are_warned_of(
    dataset, demo_data, make_train_run
):
    evaluate = {"manifest": str(demo_data / "render" / "heldout.jsonl"), "max_new_tokens": 2}
    for positions, is_warned in ((longest(dataset), True), (4096, False)):
        model = small(positions)
        run = make_train_run(dataset=str(dataset), model=model, num_steps=1, evaluate=evaluate)
        warnings = run.run_here()["preflight"]["warnings"]
        assert is_warned == any(
            f"the language model has {positions:,} positions" in warning for warning in warnings
        )


def test_the_limit_of_a_folder_is_named_by_its_file(dataset, make_train_run):
    first = make_train_run(dataset=str(dataset), num_steps=1)
    first.run_here()
    model = first.output_dir / "model"
    file = model / "config.json"
    values = json.loads(file.read_text())
    values["language"]["max_position_embeddings"] = 12
    file.write_text(json.dumps(values))
    run = make_train_run(dataset=str(dataset), model={"path": str(model)})
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
def test_a_processor_file_that_differs_from_what_consolidate_copied_ends_the_training(
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
