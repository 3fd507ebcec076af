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
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pipeline.models.build import build_model, load_model, make_unloaded
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from pipeline.models.data_fit import check_images
from pipeline.models.small_vlm import SmallVLM
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig, VisionConfig
from tests.pipeline.models.test_small_vlm import make_facts, make_images, make_prompts
from tests.pipeline.models.tiny_towers import (
    CHATML_TOKENS,
    write_qwen2,
    write_siglip,
    write_tokenizer,
)

HEAD, EMBEDDINGS = "language.lm_head.weight", "language.model.embed_tokens.weight"
RANDOM_VISION = VisionConfig(hidden_size=32, num_layers=1, num_heads=2)
RANDOM_LANGUAGE = LanguageConfig(hidden_size=32, num_layers=1, num_heads=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("towers")
    return {
        "siglip": write_siglip(root / "siglip"),
        "siglip_vision": write_siglip(root / "siglip_vision", whole=False),
        "tied": write_qwen2(root / "tied", tied=True),
        "untied": write_qwen2(root / "untied", tied=False),
    }


def from_folders(vision: Path | None, language: Path | None) -> ModelConfig:
    return ModelConfig(
        vision=RANDOM_VISION if vision is None else VisionConfig(path=str(vision)),
        language=RANDOM_LANGUAGE if language is None else LanguageConfig(path=str(language)),
    )


def build(vision: Path | None, language: Path | None, *, seed: int = 0, **facts) -> SmallVLM:
    return build_model(from_folders(vision, language), make_facts(**facts), seed=seed)


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


def test_model_without_weights_has_the_same_sizes(folders):
    config = from_folders(folders["siglip"], folders["tied"])
    unloaded = make_unloaded(config, make_facts(), torch.device("meta"))
    built = build_model(config, make_facts(), seed=0)
    shapes = {name: p.shape for name, p in unloaded.named_parameters()}
    assert shapes == {name: p.shape for name, p in built.named_parameters()}
    assert unloaded.sizes() == built.sizes()


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


def test_images_that_differ_in_size_from_the_encoders_are_refused_early(folders):
    config = from_folders(folders["siglip"], None)
    words = (
        r"siglip needs images of 32 x 32 pixels \(its learned position table has 2 x 2 "
        r"entries\), but the data set's are 64 x 64: preprocess with the image processor"
    )
    facts = make_facts(image_size=64, num_image_tokens=16)
    with pytest.raises(StageConfigError, match=words):
        check_images(config, facts.info)
    with pytest.raises(StageConfigError, match=words):
        build_model(config, facts, seed=0)


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


@pytest.mark.parametrize(
    ("vision", "language", "words"),
    [
        (
            {"hidden_size": 48, "patch_size": 14},
            {},
            r"model\.vision\.patch_size is 14, but \d+ there",
        ),
        ({"mlp_ratio": 2}, {}, r"model\.vision\.mlp_ratio is 2, but 2\.08333 there: leave it"),
        ({}, {"num_layers": 24, "num_kv_heads": 2}, r"language\.num_layers is 24, but 2 there"),
    ],
)
def test_size_that_contradicts_the_folder_is_refused(folders, vision, language, words):
    config = ModelConfig(
        vision=VisionConfig(path=str(folders["siglip"]), **vision),
        language=LanguageConfig(path=str(folders["tied"]), **language),
    )
    with pytest.raises(StageConfigError, match=words):
        build_model(config, make_facts(), seed=0)


def test_size_that_agrees_with_the_folder_may_be_given(folders):
    vision = VisionConfig(path=str(folders["siglip"]), hidden_size=48, patch_size=16)
    build_model(ModelConfig(vision=vision, language=RANDOM_LANGUAGE), make_facts(), seed=0)


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
