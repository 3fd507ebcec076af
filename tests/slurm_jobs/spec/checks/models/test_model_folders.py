"""Folders of models that a training starts from."""

from pathlib import Path
from typing import Any

import pytest

from tests.slurm_jobs.spec.checks.models.started_models import spec, write_config
from tests.slurm_jobs.spec.conftest import Check

KEY = "stages.t.config.model"


@pytest.fixture
def models(tmp_path: Path) -> None:
    """A folder of each kind, called after it."""
    kinds = "small_vlm siglip siglip_vision_model siglip2 qwen2 qwen2_5_vl bert"
    more: dict[str, dict[str, Any]] = {
        "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        "other": {"model_type": "o", "vision_config": {}, "architectures": ["XForCausalLM"]},
        "packed": {"model_type": "qwen2", "quantization_config": {"bits": 4}},
        "nameless": {},
        "internvl": {"model_type": "internvl", "text_config": {"model_type": "qwen3"}},
        "experts": {"model_type": "internvl", "text_config": {"model_type": "gpt_oss"}},
        "pixtral": {"model_type": "llava", "vision_config": {"model_type": "pixtral"}},
        "internvl_chat": {"model_type": "internvl_chat"},
        "paligemma": {"model_type": "paligemma"},
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
        "{type: hugging_face, path: internvl}",
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
        ("{type: hugging_face, path: bert}", "8:42", "those that can be trained are "),
        ("{type: hugging_face, path: other}", "8:42", "those that can be trained are "),
        ("{type: hugging_face, path: experts}", "8:42", "take one with llama or qwen2 or qwen3"),
        ("{type: hugging_face, path: pixtral}", "8:42", "its vision tower is that of Pixtral"),
        ("{type: hugging_face, path: internvl_chat}", "8:42", "whose name ends in -HF"),
        ("{type: hugging_face, path: paligemma}", "8:42", "take Gemma 3 or Gemma 4"),
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
