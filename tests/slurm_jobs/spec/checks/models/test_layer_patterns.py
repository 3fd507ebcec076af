"""Patterns of names of layers, which must match some."""

import json
from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks.models.started_models import spec, write_config
from tests.slurm_jobs.spec.conftest import Check

WHOLE = "{type: hugging_face, path: m}"
TIED = {"tie_word_embeddings": True}


def targets(*patterns: str, model: str = WHOLE, more: str = "") -> str:
    return spec(f"{model}, adapters: {{targets: {json.dumps(patterns)}}}{more}")


@pytest.mark.parametrize(
    "target",
    [
        *("language", "lm_head", "*.q_proj", "*_proj", "*[qk]_proj", "model.visual.*"),
        # how names begin is left to the job: loading changes it
        *("model.language_model.layers.0.mlp.down_proj", "hf.*.layers.9.mlp.down_proj"),
    ],
)
def test_a_pattern_that_may_match_is_left_to_the_job(
    check: Check, tmp_path: Path, target: str
) -> None:
    write_config(tmp_path / "m", {"model_type": "qwen2_5_vl"})
    if target == "*_proj":
        assert check(targets("*.q_porj")) == []  # without an index of the weights
    layer = "language_model.model.layers.0"
    names = (
        *(f"{layer}.self_attn.q_proj.weight", f"{layer}.self_attn.q_proj.bias"),
        *(f"{layer}.mlp.down_proj.weight", "visual.blocks.0.attn.qkv.weight"),
    )
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert check(targets(target)) == []


@pytest.mark.parametrize(
    ("config", "model", "head"),
    [
        ({"model_type": "qwen2_5_vl", **TIED}, WHOLE, "lm_head"),
        ({"model_type": "small_vlm", "language": TIED}, "{path: m}", "language.lm_head"),
        ({"model_type": "qwen2", **TIED}, "{language: {path: m}}", "language.lm_head"),
    ],
    ids=["whole", "small", "language part"],
)
def test_a_head_that_is_the_embeddings_is_no_target(
    check: Check, tmp_path: Path, config: dict[str, object], model: str, head: str
) -> None:
    write_config(tmp_path / "m", config)
    for target in (head, "*", "*head"):
        (line,) = check(targets(target, model=model))
        assert f"stages.t.config.adapters.targets[0]: {target!r} matches {head}, which is" in line
    assert check(targets("language", "*.q_proj", model=model)) == []
    write_config(tmp_path / "m", json.loads(json.dumps(config).replace("true", "false")))
    assert check(targets(head, model=model)) == []


def test_a_wide_quantize_pattern_must_skip_a_head_tied_to_the_embeddings(
    check: Check, tmp_path: Path
) -> None:
    write_config(tmp_path / "m", {"model_type": "qwen2_5_vl", **TIED})
    (line,) = check(targets("language", more=", quantize: {targets: ['*']}"))
    assert "stages.t.config.quantize.targets[0]: '*' matches lm_head" in line
    assert check(targets("language", more=", quantize: {targets: ['*'], skip: ['lm_head']}")) == []
