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
      {{device: cpu, strategy: single, num_steps: 1, dataset: .,
       model: {model}}}
"""
KEY = "stages.t.config.model"


def spec(model: str) -> str:
    return SPEC.format(model=model)


def write_model(folder: Path, kind: str | None, **more: object) -> None:
    folder.mkdir(parents=True)
    values = {"model_type": kind, **more} if kind else more
    (folder / "config.json").write_text(json.dumps(values))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of each kind, called after it."""
    for kind in ("small_vlm", "siglip", "siglip_vision_model", "qwen2", "qwen2_5_vl", "bert"):
        write_model(tmp_path / kind, kind)
    write_model(tmp_path / "siglip2", "siglip2")
    write_model(tmp_path / "llama", "llama", architectures=["LlamaForCausalLM"])
    write_model(tmp_path / "other", "other_vl", vision_config={}, architectures=["XForCausalLM"])
    write_model(tmp_path / "packed", "qwen2", quantization_config={"bits": 4})
    write_model(tmp_path / "nameless", None)
    return tmp_path


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
        (
            "{path: qwen2_5_vl}",
            "8:22",
            (
                f"{KEY}.path: qwen2_5_vl: model_type is 'qwen2_5_vl', and model.type is small_vlm: "
                "set `model: {type: hugging_face, path: qwen2_5_vl}`"
            ),
        ),
        (
            "{type: hugging_face, path: small_vlm}",
            "8:42",
            "model.type is hugging_face: set `type: small_vlm`",
        ),
        (
            "{type: hugging_face, path: qwen2}",
            "8:42",
            "it is the language model alone; give it as `model: {language: {path: qwen2}}`",
        ),
        (
            "{type: hugging_face, path: siglip}",
            "8:42",
            "it is the vision model alone; give it as `model: {vision: {path: siglip}}`",
        ),
        ("{path: siglip}", "8:22", "it is the vision model alone"),
        ("{path: bert}", "8:22", "give the `model/` that a training of one exported, or set"),
        ("{type: hugging_face, path: llama}", "8:42", "it is a language model alone; those that"),
        (
            "{type: hugging_face, path: bert}",
            "8:42",
            (
                "model_type is 'bert', and model.type is hugging_face: those that can be trained "
                "are idefics3, llava, llava_next, qwen2_5_vl, qwen2_vl, qwen3_vl, smolvlm"
            ),
        ),
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


@pytest.mark.usefixtures("models")
def test_vision_and_language_that_are_swapped_are_told_each_with_its_place(check: Check) -> None:
    vision, language = check(spec("{vision: {path: qwen2}, language: {path: siglip}}"))
    assert "swapped? This one goes to `language: {path: qwen2}`" in vision
    assert "swapped? This one goes to `vision: {path: siglip}`" in language


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "m has no config.json; give the folder that has it, next to the weights"),
        (("m/model/config.json",), "it is the output of a training: give m/model"),
        (("m/adapter_config.json",), "it holds adapters alone: give the `model/` next to it"),
        (("m/snapshots/abc/config.json",), "it is of a hub's cache: give the folder in its"),
        (("config.json",), "m has no config.json; give "),
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
    assert line.startswith(f"8:42: {KEY}.path: m has no config.json; ")
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "its config.json is no valid JSON (Expecting property name"),
        ("version https://git-lfs.github.com/spec/v1\n", "its config.json is no valid JSON"),
        ("[1]", "its config.json holds no keys and values"),
    ],
)
def test_a_config_that_is_no_json_is_refused(
    check: Check, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(text)
    (line,) = check(spec("{language: {path: m}}"))
    assert line.startswith(f"8:33: {KEY}.language.path: m: ")
    assert message in line


def test_weights_are_no_folder_of_a_model(check: Check, tmp_path: Path) -> None:
    write_model(tmp_path / "m", "qwen2_5_vl")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    (line,) = check(spec("{type: hugging_face, path: m/model.safetensors}"))
    assert line.endswith("model.safetensors has no config.json; give m")


def test_a_model_that_a_stage_makes_is_left_to_the_job(check: Check) -> None:
    text = spec("{type: hugging_face, path: '${m.output_dir}/vlm'}")
    assert check(text.replace("  t:\n", "  m: {shell: make}\n  t:\n    after: m\n")) == []
