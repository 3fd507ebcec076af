"""The small model from pretrained towers: nothing of them changes; what does not fit is told."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.models.build import build_model
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig, VisionConfig
from tests.pipeline.models.forged import forge
from tests.pipeline.models.small import make_facts, make_images
from tests.pipeline.models.tiny_towers import (
    CHATML_TOKENS,
    write_qwen2,
    write_siglip,
    write_tokenizer,
)
from tests.pipeline.models.towers import build, from_folders


def edit_config(folder: Path, **changes) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    return folder


@contextmanager
def capture(logger: logging.Logger, caplog) -> Iterator[None]:
    """Also what a logger says that does not propagate."""
    logger.addHandler(caplog.handler)
    try:
        yield
    finally:
        logger.removeHandler(caplog.handler)


@pytest.mark.parametrize("name", ["siglip", "siglip_vision"])
def test_the_encoder_gives_the_same_as_alone(folders, name):
    from transformers import AutoModel

    model = build(folders[name], None).eval()
    alone = AutoModel.from_pretrained(folders[name], dtype=torch.float32).eval()
    alone = getattr(alone, "vision_model", alone)
    with torch.no_grad():
        expected = alone(**make_images(2)).last_hidden_state
        assert torch.equal(model.vision(**make_images(2)).last_hidden_state, expected)


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_the_language_model_gives_the_same_as_alone(folders, name):
    from transformers import AutoModelForCausalLM

    model = build(None, folders[name]).eval()
    alone = AutoModelForCausalLM.from_pretrained(folders[name], dtype=torch.float32).eval()
    ids = torch.tensor([[7, 8, 9, 30, 2, 11]])
    with torch.no_grad():
        hidden, _ = model.hidden_states(ids, {}, None)
        assert torch.equal(model.output_head()(hidden), alone(input_ids=ids).logits)


def test_folders_of_transformers_4_are_read_as_those_of_5(folders, tmp_path):
    vision = shutil.copytree(folders["siglip_vision"], tmp_path / "vision")
    weights = load_file(vision / "model.safetensors")
    older = {f"vision_model.{name}": tensor for name, tensor in weights.items()}
    save_file(older, vision / "model.safetensors", metadata={"format": "pt"})
    language = shutil.copytree(folders["tied"], tmp_path / "language")
    values = json.loads((language / "config.json").read_text())
    older = values | {"rope_theta": values.pop("rope_parameters")["rope_theta"]}
    older |= {"torch_dtype": older.pop("dtype"), "sliding_window": 32768, "max_window_layers": 24}
    older.pop("rope_parameters", None)
    (language / "config.json").write_text(json.dumps(older))
    one = build(vision, language)
    other = build(folders["siglip_vision"], folders["tied"])
    assert one.config.language["rope_parameters"] == other.config.language["rope_parameters"]
    state = other.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in one.state_dict().items())


def test_weights_that_were_saved_in_half_precision_are_trained_in_fp32(tmp_path):
    folder = write_qwen2(tmp_path / "half", tied=True, dtype=torch.bfloat16)
    saved = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    model = build(None, folder)
    assert saved.dtype == torch.bfloat16
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.language.model.embed_tokens.weight, saved.float())


def test_the_seed_sets_every_part_that_does_not_come_from_a_folder(folders):
    one, same, other = (build(folders["siglip"], None, seed=s).state_dict() for s in (5, 5, 6))
    assert all(torch.equal(tensor, same[name]) for name, tensor in one.items())
    equal = {name for name, t in one.items() if t.ndim > 1 and torch.equal(t, other[name])}
    assert equal == {name for name, t in one.items() if t.ndim > 1 and name.startswith("vision.")}


def test_every_parameter_learns_from_text_alone_without_a_pooling_head(folders):
    model = build(folders["siglip"], folders["tied"])
    assert model.training
    model(
        input_ids=torch.tensor([[7, 8, 9]]),
        supervised=torch.tensor([0]),
        targets=torch.tensor([8]),
        vision={},
    ).sum().backward()
    names = dict(model.named_parameters())
    assert all(parameter.grad is not None for parameter in names.values())
    assert not any("head." in name and name.startswith("vision.") for name in names)


def test_what_is_unused_of_a_whole_siglip_is_no_reason_for_a_warning(folders, tmp_path, caplog):
    # The text model of the folders on hubs names tokens that its vocabulary has not.
    values = json.loads((folders["siglip"] / "config.json").read_text())
    del values["text_config"]["eos_token_id"]
    shutil.copytree(folders["siglip"], tmp_path, dirs_exist_ok=True)
    edit_config(tmp_path, text_config=values["text_config"])
    found = logging.getLogger("transformers")
    with caplog.at_level(logging.WARNING), capture(found, caplog):
        build(tmp_path, None)
        build(folders["siglip_vision"], None)
    assert not [r.getMessage() for r in caplog.records]


def test_an_unexpected_weight_is_logged_as_ignored(tmp_path, caplog):
    folder = write_siglip(tmp_path / "more")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "vision_model.more": torch.ones(1)}, folder / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        build(folder, None)
    assert [r for r in caplog.records if "ignored: " in r.getMessage() and "more" in r.args[1]]


def test_answers_end_as_the_data_sets_do_and_not_as_the_folder_says(folders):
    model = build(folders["siglip"], folders["tied"], eos_token_id=17)
    assert model.language.config.eos_token_id == model.config.language["eos_token_id"] == 17


@pytest.mark.parametrize(
    ("towers", "words"),
    [
        (("tied", None), r"model\.vision\.path .*tied: model_type is 'qwen2', expected a SigLIP"),
        (
            (None, "siglip"),
            r"model\.language\.path .*siglip: model_type is 'siglip', expected a Qw",
        ),
    ],
)
def test_folder_of_another_kind_of_model_is_refused(folders, towers, words):
    vision, language = (folders.get(name) for name in towers)
    with pytest.raises(StageConfigError, match=words):
        build(vision, language)


def test_siglip_2_of_flexible_resolution_is_refused_by_its_name(tmp_path):
    from transformers import Siglip2VisionConfig

    Siglip2VisionConfig(hidden_size=48).save_pretrained(tmp_path)
    with pytest.raises(StageConfigError, match="SigLIP 2 of flexible resolution"):
        build(tmp_path, None)


def test_empty_folder_is_refused_with_its_key(tmp_path):
    with pytest.raises(StageConfigError, match=r"model\.vision\.path must be the folder with conf"):
        build(tmp_path, None)


@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("siglip", "vision_model.encoder.layers.1.mlp.fc1.weight"),
        ("untied", "lm_head.weight"),
        ("tied", "model.embed_tokens.weight"),
    ],
)
def test_missing_weight_is_refused_by_name(tmp_path, kind, weight):
    is_vision = kind == "siglip"
    folder = write_siglip(tmp_path) if is_vision else write_qwen2(tmp_path, tied=kind == "tied")
    weights = load_file(folder / "model.safetensors")
    del weights[weight]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    name = weight.removeprefix("vision_model.").replace(".", r"\.")
    with pytest.raises(StageConfigError, match=rf"weights are missing.*{name}"):
        build(*((folder, None) if is_vision else (None, folder)))


def test_weight_file_that_was_cut_short_is_refused(tmp_path):
    folder = write_siglip(tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        StageConfigError, match=r"cannot be loaded .*: model\.vision\.path must be the"
    ):
        build(folder, None)


def test_weights_of_other_sizes_than_the_config_says_are_refused(tmp_path):
    folder = edit_config(write_qwen2(tmp_path, tied=True), intermediate_size=128)
    with pytest.raises(StageConfigError, match=r"cannot be loaded|differ in size from config"):
        build(None, folder)


def test_patches_that_leave_a_rest_are_counted_as_the_encoder_makes_them(tmp_path):
    # As SigLIP so400m: 384 pixels in patches of 14 are 27 x 27.
    folder = write_siglip(tmp_path, image_size=32, patch_size=14)
    model = build(folder, None, num_image_tokens=4)
    assert model.vision(**make_images(1)).last_hidden_state.shape[1] == 4
    assert model.config.num_image_tokens == 4


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, r"embeddings of 39 tokens, but the data set's tokenizer has 40 "),
        ({"image_token_id": 39}, r"image token '<image>' is number 39\): preprocess with the tok"),
    ],
)
def test_tokens_without_an_embedding_are_refused(tmp_path, facts, words):
    folder = write_qwen2(tmp_path, tied=True, vocab_size=39)
    with pytest.raises(StageConfigError, match=words):
        build(None, folder, **facts)


def test_a_tokenizer_may_add_tokens_but_not_renumber_them(tmp_path):
    folder = write_tokenizer(write_qwen2(tmp_path / "qwen", tied=True, vocab_size=300))

    def read(name: str, tokens: tuple[str, ...]) -> DataFacts:
        tokenizer = load_tokenizer(write_tokenizer(tmp_path / name, tokens=tokens))
        return read_facts(make_facts().info, tokenizer)

    config = from_folders(None, folder)
    build_model(config, read("same", CHATML_TOKENS), seed=0)
    build_model(config, read("more", (*CHATML_TOKENS, "<|more|>")), seed=0)
    other = read("other", ("<|new|>", *CHATML_TOKENS))
    with pytest.raises(
        StageConfigError, match=r"number \d+ tokens differently .* is 25\d and 25\d\), so"
    ):
        build_model(config, other, seed=0)


def test_embeddings_may_have_more_rows_than_the_tokenizer_has_tokens(folders):
    assert build(None, folders["tied"]).config.language["vocab_size"] == 60


def test_quantised_weights_are_refused(tmp_path):
    folder = edit_config(write_qwen2(tmp_path, tied=True), quantization_config={"bits": 4})
    with pytest.raises(StageConfigError, match="its weights are quantised"):
        build(None, folder)


@pytest.mark.parametrize("whole", [{"path": "/m"}, {"type": "hugging_face", "name": "some/model"}])
def test_parts_in_addition_to_a_whole_model_are_refused(whole):
    with pytest.raises(ValueError, match=r"vision\.path is /v: the first is a whole model"):
        ModelConfig(**whole, vision=VisionConfig(path="/v"))


def test_sizes_of_a_random_model_are_those_that_were_not_given():
    assert VisionConfig(hidden_size=64).sizes()["num_layers"] == 4
    assert {f.name for f in dataclasses.fields(VisionConfig)} == {"path", *VisionConfig().sizes()}


@pytest.mark.parametrize("form", ["archive", "legacy", "pickle"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_in_the_place_of_weights_is_not_run(tmp_path, name, form):
    folder, made = write_qwen2(tmp_path / "model", tied=True), tmp_path / "made"
    (folder / "model.safetensors").unlink()
    forge(folder / name, made, form)
    with pytest.raises(StageConfigError, match="cannot be loaded"):
        build(None, folder)
    assert not made.exists()


def test_kernels_that_a_towers_config_names_are_not_loaded(tmp_path):
    folder = write_qwen2(tmp_path / "model", tied=True)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "_attn_implementation": "a/b"}))
    with pytest.raises(StageConfigError, match="takes its attention from a/b"):
        build(None, folder)
