import json
from collections.abc import Callable
from pathlib import Path

import pytest

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  t:
    run: train
    config:
      device: cpu
      strategy: single
      num_steps: 1
      dataset: .
      model: {{type: hugging_face, path: m}}
      adapters: {{targets: [{targets}]}}
"""
KEY = "stages.t.config.adapters.targets"
NAMES = (
    "language_model.model.layers.0.self_attn.q_proj.weight",
    "language_model.model.layers.0.self_attn.q_proj.bias",
    "language_model.model.layers.0.mlp.down_proj.weight",
    "visual.blocks.0.attn.qkv.weight",
)


@pytest.fixture(autouse=True)
def _model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text('{"model_type": "qwen2_5_vl"}')


@pytest.fixture
def _index(tmp_path: Path) -> None:
    index = {"weight_map": dict.fromkeys(NAMES, "model-00001-of-00001.safetensors")}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.usefixtures("_index")
@pytest.mark.parametrize(
    "target",
    [
        *("language", "lm_head", "*.q_proj", "*_proj", "*[qk]_proj", "model.visual.*"),
        # how names begin is left to the job: loading changes it
        *("model.language_model.layers.0.mlp.down_proj", "hf.*.layers.9.mlp.down_proj"),
    ],
)
def test_a_pattern_that_may_match_is_left_to_the_job(check: Check, target: str) -> None:
    assert check(SPEC.format(targets=f"'{target}'")) == []


def test_without_an_index_of_the_weights_nothing_is_said_of_patterns(check: Check) -> None:
    assert check(SPEC.format(targets="'*.q_porj'")) == []


@pytest.mark.parametrize(
    ("config", "head"),
    [
        ({"model_type": "qwen2_5_vl", "tie_word_embeddings": True}, "lm_head"),
        (
            {"model_type": "small_vlm", "language": {"tie_word_embeddings": True}},
            "language.lm_head",
        ),
    ],
)
def test_a_head_that_is_the_embeddings_is_no_target(
    check: Check, tmp_path: Path, config: dict[str, object], head: str
) -> None:
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    kind = "small_vlm" if config["model_type"] == "small_vlm" else "hugging_face"
    spec = SPEC.replace("hugging_face", kind)
    for target in (head, "*", "*head"):
        (line,) = check(spec.format(targets=f"'{target}'"))
        assert line.startswith(f"12:28: {KEY}[0]: {target!r} matches {head}, which is the embed")
    assert check(spec.format(targets="language, '*.q_proj'")) == []
    own = json.dumps(config).replace("true", "false")
    (tmp_path / "m" / "config.json").write_text(own)
    assert check(spec.format(targets=f"'{head}'")) == []


def test_a_head_that_is_the_embeddings_may_be_skipped_by_a_wide_pattern_of_quantize(
    check: Check, tmp_path: Path
) -> None:
    config = {"model_type": "qwen2_5_vl", "tie_word_embeddings": True}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    text = SPEC.format(targets="language")
    (line,) = check(f"{text}      quantize: {{targets: ['*']}}\n")
    assert "stages.t.config.quantize.targets[0]: '*' matches lm_head" in line
    assert check(f"{text}      quantize: {{targets: ['*'], skip: ['lm_head']}}\n") == []


def test_the_tied_head_of_a_language_model_that_is_a_part_is_no_target(
    check: Check, tmp_path: Path
) -> None:
    config = {"model_type": "qwen2", "tie_word_embeddings": True}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    spec = SPEC.replace("{{type: hugging_face, path: m}}", "{{language: {{path: m}}}}")
    (line,) = check(spec.format(targets="language.lm_head"))
    assert "'language.lm_head' matches language.lm_head" in line
