"""Models built from seeds and from folders, and sizes that contradict a folder."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.build import build_model, load_model, make_unloaded
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig, VisionConfig
from tests.pipeline.models.small import CONFIG, make_facts
from tests.pipeline.models.towers import RANDOM_LANGUAGE, from_folders


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(0)
    one = build_model(CONFIG, make_facts(), seed=5).state_dict()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    same = build_model(CONFIG, make_facts(), seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    other = build_model(CONFIG, make_facts(), seed=6).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["projector.0.weight"], other["projector.0.weight"])


def test_saved_model_loads_equal(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, make_facts())
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def test_model_without_weights_has_the_same_sizes(folders):
    config = from_folders(folders["siglip"], folders["tied"])
    unloaded = make_unloaded(config, make_facts(), torch.device("meta"))
    built = build_model(config, make_facts(), seed=0)
    shapes = {name: p.shape for name, p in unloaded.named_parameters()}
    assert shapes == {name: p.shape for name, p in built.named_parameters()}
    assert unloaded.sizes() == built.sizes()


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
