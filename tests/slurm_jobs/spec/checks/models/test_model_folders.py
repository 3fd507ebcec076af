"""Folders of models that a training starts from, and patterns of names of their layers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.spec.conftest import Check

KEY = "stages.t.config.model"


def spec(model: str) -> str:
    return f"""\
name: a
cluster: local
stages:
  t:
    run: train
    config:
      {{device: cpu, strategy: single, num_steps: 1, dataset: .,
       model: {model}}}
"""


def write_config(folder: Path, values: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))


@pytest.fixture
def models(tmp_path: Path) -> None:
    """A folder of each kind, called after it."""
    kinds = "small_vlm siglip siglip_vision_model siglip2 qwen2 qwen2_5_vl bert"
    more: dict[str, dict[str, Any]] = {
        "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        "other": {"model_type": "o", "vision_config": {}, "architectures": ["XForCausalLM"]},
        "packed": {"model_type": "qwen2", "quantization_config": {"bits": 4}},
        "nameless": {},
    }
    for name, values in ({kind: {"model_type": kind} for kind in kinds.split()} | more).items():
        write_config(tmp_path / name, values)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    "model",
    [
        "{path: small_vlm}",
        "{type: hugging_face, path: qwen2_5_vl}",
        "{vision: {path: siglip}, language: {path: qwen2}}",
        "{vision: {path: siglip_vision_model}}",
        "{type: hugging_face, name: Qwen/Qwen2-VL-2B-Instruct}",
        "{type: hugging_face, path: nameless}",
    ],
)
def test_folders_that_may_be_right_have_no_problem(check: Check, model: str) -> None:
    assert check(spec(model)) == []


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("model", "place", "message"),
    [
        ("{path: qwen2_5_vl}", "8:22", "set `model: {type: hugging_face, path: qwen2_5_vl}`"),
        (
            *("{type: hugging_face, path: small_vlm}", "8:42"),
            "model.type is hugging_face: set `type: small_vlm`",
        ),
        (
            *("{type: hugging_face, path: qwen2}", "8:42"),
            "it is the language model alone; give it as `model: {language: {path: qwen2}}`",
        ),
        (
            *("{type: hugging_face, path: siglip}", "8:42"),
            "it is the vision model alone; give it as `model: {vision: {path: siglip}}`",
        ),
        ("{path: siglip}", "8:22", "it is the vision model alone"),
        ("{path: bert}", "8:22", "give the `model/` that a training of one exported, or set"),
        ("{type: hugging_face, path: llama}", "8:42", "it is a language model alone; those that"),
        ("{type: hugging_face, path: bert}", "8:42", "those that can be trained are idefics3, ll"),
        ("{type: hugging_face, path: other}", "8:42", "those that can be trained are idefics3"),
        ("{type: hugging_face, path: siglip2}", "8:42", "it is a vision model alone; those that"),
        ("{vision: {path: qwen2_5_vl}}", "8:31", "expected a SigLIP"),
        ("{vision: {path: siglip2}}", "8:31", "SigLIP 2 of flexible resolution (NaFlex)"),
        ("{vision: {path: nameless}}", "8:31", "model_type is None, expected a SigLIP"),
        ("{language: {path: llama}}", "8:33", "model_type is 'llama', expected a Qwen2"),
        ("{language: {path: packed}}", "8:33", "its weights are quantised"),
    ],
)
def test_another_kind_of_model_is_refused_at_its_line_with_the_remedy(
    check: Check, model: str, place: str, message: str
) -> None:
    (line,) = check(spec(model))
    assert line.startswith(f"{place}: {KEY}.")
    assert message in line


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "give the folder that has it, next to the weights"),
        (("m/model/config.json",), "it is the output of a training: give m/model"),
        (("m/adapter_config.json",), "it holds adapters alone: give the `model/` next to it"),
        (("m/snapshots/abc/config.json",), "it is of a hub's cache: give the folder in its"),
        (("config.json",), "give "),
    ],
)
def test_a_folder_without_a_config_is_refused_with_what_to_give(
    check: Check, tmp_path: Path, files: tuple[str, ...], message: str
) -> None:
    (tmp_path / "m").mkdir()
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (line,) = check(spec("{type: hugging_face, path: m}"))
    assert line.startswith(f"8:42: {KEY}.path: m has no config.json; {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "its config.json is not valid JSON (Expecting property name"),
        ("version https://git-lfs.github.com/spec/v1\n", "its config.json is not valid JSON"),
        ("[1]", "its config.json holds no keys and values"),
    ],
)
def test_a_config_that_is_no_json_is_refused(
    check: Check, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(text)
    (line,) = check(spec("{language: {path: m}}"))
    assert line.startswith(f"8:33: {KEY}.language.path: m: {message}")


def test_a_model_that_a_stage_makes_is_left_to_the_job(check: Check) -> None:
    text = spec("{type: hugging_face, path: '${m.output_dir}/vlm'}")
    assert check(text.replace("  t:\n", "  m: {shell: make}\n  t:\n    after: m\n")) == []


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
