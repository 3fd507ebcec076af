"""The whole way from a SigLIP's and a Qwen2's folder to a model that says what it sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import COLOURS, run_consolidate, run_preprocess, write_image
from tests.pipeline.models.tiny_towers import (
    write_image_processor,
    write_qwen2,
    write_siglip,
    write_tokenizer,
)
from tests.pipeline.train.tiny_runs import SAVED, tiny_config

NUM_TOKENS = 261
"""Of the tokenizer; the table of embeddings has more rows, as Qwen2.5's."""
HEAD, EMBEDDINGS = "language.lm_head.weight", "language.model.embed_tokens.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """The folders of both parts, the manifest, and the data set made with both."""
    root = tmp_path_factory.mktemp("towers")
    language = write_qwen2(root / "qwen", tied=True, vocab_size=NUM_TOKENS + 11)
    folders = {
        "siglip": write_image_processor(write_siglip(root / "siglip")),
        "qwen": write_tokenizer(language),
        "manifest": root / "rows.csv",
    }
    for name, colour in COLOURS.items():
        write_image(root / f"{name}.png", colour)
    rows = "".join(f"{name}.png,{name}\n" for name in COLOURS)
    folders["manifest"].write_text(f"image_path,text\n{rows}")
    config = {
        "manifest": str(folders["manifest"]),
        "processor": {"images": str(folders["siglip"]), "text": str(folders["qwen"])},
        "num_threads": 1,
    }
    (result,), parts_dir = run_preprocess(root / "prep", config)
    assert result["num_samples"] == len(COLOURS)
    folders["dataset"] = run_consolidate(root / "set", parts_dir)[1]
    return folders


def config_of(made: dict[str, Path], **changes) -> dict:
    towers = {
        "vision": {"path": str(made["siglip"])},
        "language": {"path": str(made["qwen"])},
    }
    values = {"model": towers, "global_batch_size": 2, **changes}
    return tiny_config((made["dataset"], None), **values)


@pytest.mark.slow
def test_two_ranks_learn_to_answer_from_towers_with_a_tied_head(made, make_train_run):
    evaluate = {"manifest": str(made["manifest"]), "max_new_tokens": 10}
    sharding = {"unit_min_params": 0}
    run = make_train_run(**config_of(made, num_steps=40, evaluate=evaluate, sharding=sharding))
    result = run.run()
    assert result["exact_match"] == 1.0
    weights = load_file(run.output_dir / "model/model.safetensors")
    assert HEAD not in weights
    assert weights[EMBEDDINGS].shape[0] == NUM_TOKENS + 11
    config = json.loads((run.output_dir / "model/config.json").read_text())
    assert config["language"]["tie_word_embeddings"] is True
    assert config["language"]["rope_parameters"]["rope_theta"] == 1_000_000.0
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    assert result["num_parameters"] == num_parameters  # shared ones counted once


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_one_process_resumes_a_tied_head_exactly_and_exports_it(made, make_train_run, strategy):
    run = make_train_run(**config_of(made, **SAVED))
    run.check_resume(strategy=strategy)
    start = load_file(made["qwen"] / "model.safetensors")["model.embed_tokens.weight"]
    learned = load_file(run.output_dir / "model/model.safetensors")[EMBEDDINGS]
    assert not torch.equal(start, learned)
    later = make_train_run(
        **config_of(made, num_steps=1, model={"path": str(run.output_dir / "model")})
    )
    later.run_here()
    assert later.losses()[0] < run.losses(1)[0]


def test_encoder_of_another_size_is_refused_before_anything_is_copied(
    made, make_train_run, tmp_path
):
    other = write_siglip(tmp_path / "other", image_size=64)
    towers = {"vision": {"path": str(other)}, "language": {"path": str(made["qwen"])}}
    run = make_train_run(**config_of(made, model=towers))
    with pytest.raises(StageConfigError, match="needs images of 64 x 64 pixels"):
        run.run_here()
    assert not list(run.root.rglob("shard-*.tar"))
