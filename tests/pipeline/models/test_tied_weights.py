"""Output heads that are the embeddings: saved once, and refused where they differ."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pipeline.models.build import load_model, make_unloaded
from pipeline.models.small_vlm import SmallVLM
from pipeline.train.export import check_weights
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from tests.pipeline.models.small import make_facts, make_prompts
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.models.towers import build


@pytest.mark.parametrize("name", ["llava", "llava_onevision", "smolvlm", "qwen2_5_vl", "internvl"])
def test_tied_output_head_is_saved_once_and_is_still_tied(make_kind, name, tmp_path):
    kind = make_kind(name)
    folder = write_tiny(name, tmp_path / "tied", tied=True)
    model = load_model(folder, kind.facts)
    weights = {n: v.clone() for n, v in model.state_dict().items()}  # gathered: no longer shared
    written = model.save_pretrained(tmp_path / "out", weights)
    check_weights(tmp_path / "out", written)
    assert written.keys() == load_file(folder / "model.safetensors").keys()
    loaded = load_model(tmp_path / "out", kind.facts)
    assert loaded.output_head().weight is loaded.hf.get_input_embeddings().weight


@pytest.mark.parametrize(
    "name", ["llava", "llava_onevision", "smolvlm", "qwen2_5_vl", "internvl", "mistral3", "glm_ocr"]
)
def test_head_of_its_own_that_the_config_ties_is_refused(make_kind, name, tmp_path):
    folder = write_tiny(name, tmp_path / "model", tied=False)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StageConfigError, match=r"ties lm_head\.weight to .*set tie_word_emb"):
        load_model(folder, make_kind(name).facts)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["internvl", "mistral3"])
def test_a_config_that_leaves_tying_to_its_text_config_is_followed(make_kind, tmp_path, name, tied):
    """As the published files of InternVL do; transformers 5 alone would tie them all."""
    kind = make_kind(name)
    folder = write_tiny(name, tmp_path / "model", tied=tied)
    config = json.loads((folder / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    config["text_config"]["tie_word_embeddings"] = tied
    (folder / "config.json").write_text(json.dumps(config))
    model = load_model(folder, kind.facts)
    assert bool(model.tied_weights()) == tied
    unread = make_unloaded(
        ModelConfig(type="hugging_face", path=str(folder)), kind.facts, torch.device("meta")
    )
    assert unread.tied_weights() == model.tied_weights()
    model.save_pretrained(tmp_path / "out")
    again = load_model(tmp_path / "out", kind.facts)
    assert again.tied_weights() == model.tied_weights()
    assert torch.equal(again.output_head().weight, model.output_head().weight)


HEAD, EMBEDDINGS = "language.lm_head.weight", "language.model.embed_tokens.weight"


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_exported_model_loads_equal_and_a_tied_head_is_written_once(folders, tmp_path, name):
    model = build(folders["siglip"], folders[name]).eval()
    written = model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert names == written.keys()
    assert (HEAD in names) == (name == "untied")
    loaded = load_model(tmp_path, make_facts()).eval()
    assert loaded.config == model.config
    state = loaded.state_dict()
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())
    head, embeddings = loaded.output_head().weight, loaded.language.get_input_embeddings().weight
    assert (head is embeddings) == (name == "tied")
    prompts = make_prompts([[7, 4, 4, 4, 4, 8], [9, 10]])
    answers = model.generate(prompts, max_new_tokens=5)
    assert loaded.generate(prompts, max_new_tokens=5) == answers


def test_export_of_gathered_weights_takes_both_names_of_a_tied_head(folders, tmp_path):
    model = build(folders["siglip"], folders["tied"])
    gathered = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert {HEAD, EMBEDDINGS} <= gathered.keys()
    written = model.save_pretrained(tmp_path, gathered)
    assert written.keys() == gathered.keys() - {HEAD}


def test_folder_without_the_embeddings_that_a_head_is_tied_to_is_refused(folders, tmp_path):
    model = build(folders["siglip"], folders["tied"])
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[EMBEDDINGS]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(StageConfigError, match=r"(?s)does not fit .*embed_tokens"):
        SmallVLM.from_pretrained(tmp_path)


def test_saving_a_tied_head_that_was_trained_separately_is_refused(make_kind, tied_dir, tmp_path):
    model = load_model(tied_dir, make_kind("qwen2_5_vl").facts)
    weights = dict(model.state_dict())
    model.save_pretrained(tmp_path, weights)
    with pytest.raises(StageError, match=r"lm_head.weight no longer equals .*embed_tokens.weight"):
        model.save_pretrained(
            tmp_path, weights | {"hf.lm_head.weight": weights["hf.lm_head.weight"] + 1}
        )
