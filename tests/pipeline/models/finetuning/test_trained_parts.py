"""Parts of models, and which parameters patterns stand for."""

from __future__ import annotations

import pytest

from pipeline.models.build import build_model
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.parameter_names import visible_name
from pipeline.models.finetuning.trained_parts import choose, parts_of, set_trainable
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import AdaptersConfig
from tests.pipeline.models.small import CONFIG, make_facts


def test_every_parameter_belongs_to_the_part_of_its_module(kind):
    model = kind.build()
    parts = parts_of(model)
    assert set(parts.values()) == {"vision", "projector", "language"}
    vision = {id(p) for p in model.vision_tower.parameters()}
    language = {id(p) for p in model.language_model.parameters()}
    language |= {id(p) for p in model.output_head().parameters()}
    for name in model.unused_parameters():  # those of towers for sounds are of no part's module
        if "audio" in name:
            assert parts.pop(name) == "language"
    for name, parameter in model.named_parameters():
        if name not in parts:
            continue
        if parts[name] == "language":
            assert id(parameter) in language
        elif parts[name] == "vision":
            assert id(parameter) in vision
        else:
            assert id(parameter) not in language
    assert len(language) == sum(part == "language" for part in parts.values())


def test_parts_of_the_small_model():
    parts = parts_of(build_model(CONFIG, make_facts(), seed=0))
    assert choose(parts, ["projector"], "train") == {
        f"projector.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")
    }
    assert choose(parts, ["all"], "train") == set(parts)


def test_patterns_match_names_as_the_files_have_them(make_kind):
    model = make_kind("qwen2_5_vl").build()
    add_adapters(model, AdaptersConfig(rank=2), seed=0)
    parts = parts_of(model)
    one = choose(parts, ["model.language_model.layers.1.mlp.*"], "train")
    assert {visible_name(name) for name in one} >= {
        "model.language_model.layers.1.mlp.up_proj.weight"
    }
    assert choose(parts, ["adapters"], "train") == {n for n in parts if ".lora_" in n}
    assert not any(".lora_" in name for name in choose(parts, ["all"], "train"))
    assert choose(parts, ["vision", "language"], "t") == choose(parts, ["language", "vision"], "t")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("projektor", r"phases\.0\.train: 'projektor' is not a part .* similar: projector"),
        ("language.model.layer.*", r"matches no parameter; similar: language"),
        ("adapters", "the model has no adapters; set `adapters:`"),
        ("heads", "the model has no heads; set `levels` with a `head: classes`"),
    ],
)
def test_pattern_that_matches_nothing_is_refused_with_what_is_near(pattern, words):
    parts = parts_of(build_model(CONFIG, make_facts(), seed=0))
    with pytest.raises(StageConfigError, match=words):
        choose(parts, [pattern], "phases.0.train")


def test_chosen_parameters_are_trained_unless_nothing_depends_on_them(make_kind):
    model = make_kind("llava").build()
    unused = model.unused_parameters()
    assert unused
    set_trainable(model, choose(parts_of(model), ["projector", "vision"], "train"))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    parts = parts_of(model)
    assert {parts[name] for name in trained} == {"projector", "vision"}
    assert not trained & unused
    set_trainable(model, choose(parts_of(model), ["all"], "train"))
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == unused
