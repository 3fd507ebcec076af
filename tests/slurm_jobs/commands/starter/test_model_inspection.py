"""What `init` says of a model: a name on the hub, or a folder that is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_jobs.commands.starter.model_inspection import inspect_weights
from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, answering, begin, images, init

__all__ = ["begin", "command", "init"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_on_the_hub_needs_one_module_which_the_spec_names(
    init: Init, tmp_path: Path
) -> None:
    images(tmp_path / "pics")
    said = init("specs", "--data", "pics", "--model", "Some/Model", "--yes").out
    assert "note: there is no folder Some/Model here, so it is taken as a name on the" in said
    assert said.startswith("jobs run on this machine, because of --local\n")
    spec = (tmp_path / "specs/finetune.yaml").read_text()
    assert sorted(path.name for path in (tmp_path / "specs").glob("*.py")) == ["recipes.py"]
    assert "add `source: FOLDER` to `config`" in spec
    assert "recipes.py next\n  # to this spec: keep that file" in spec
    assert "shapes_demo" not in spec


def test_a_model_that_may_be_meant_as_a_folder_is_noted(
    init: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "pics")
    answering(monkeypatch, "pics\nmodels/missing\n")
    assert "note: there is no folder models/missing here" in init("--name", "asked").out


@pytest.mark.parametrize(
    "url",
    [
        "https://huggingface.co/Some/Model-7B",
        "https://huggingface.co/Some/Model-7B/tree/main",
        "huggingface.co/Some/Model-7B",
        "hf.co/Some/Model-7B?library=transformers",
    ],
)
def test_the_address_of_a_model_on_the_hub_is_its_name(url: str) -> None:
    model = inspect_weights(url, as_named=url)
    assert (model.name, model.is_on_hub, model.weights_gb) == ("Some/Model-7B", True, 14)


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("llava-hf/llava-1.5-7b-hf", "llava-1.5"),
        ("llava-hf/llava-v1.6-vicuna-7b-hf", "llava-1.5"),
        ("llava-hf/llava-v1.6-mistral-7b-hf", "llava-next-mistral"),
        ("Qwen/Qwen3.5-9B", "qwen3.5"),
        ("zai-org/GLM-OCR", "glm-4v"),
        ("zai-org/GLM-4.6V-Flash", "glm-4.6v"),
        ("Qwen/Qwen2.5-VL-3B-Instruct", None),
        ("Qwen/Qwen3-VL-4B-Instruct", None),
    ],
)
def test_a_published_llava_gets_a_template_that_ends_its_turns(
    name: str, template: str | None
) -> None:
    assert inspect_weights(name, as_named=name).chat_template == template


@pytest.mark.parametrize(
    ("kinds", "file", "text", "template"),
    [
        ("llava llama", "chat_template.jinja", "{{ text }} ", "llava-1.5"),
        ("llava llama", "chat_template.json", '{"chat_template": "{{ text }}"}', "llava-1.5"),
        (
            "llava_next mistral",
            "tokenizer_config.json",
            '{"eos_token": "</s>"}',
            "llava-next-mistral",
        ),
        ("llava llama", "chat_template.jinja", "{{ text + eos_token }}", None),
        ("llava llama", "chat_template.json", '{"chat_template": "{{ text }}</s>"}', None),
        ("llava qwen2", "chat_template.jinja", "{{ text }} ", None),
        ("qwen2_vl llama", "chat_template.jinja", "{{ text }} ", None),
        ("qwen3_5 qwen3_5_text", "chat_template.jinja", "<think>{{ text }}", "qwen3.5"),
        ("qwen3_5_moe qwen3_5_moe_text", "chat_template.jinja", "{{ text }}", None),
        ("glm_ocr glm_ocr_text", "chat_template.jinja", "<|user|>{{ text }}", "glm-4v"),
        ("glm46v glm4v_text", "chat_template.jinja", "<|user|>{{ text }}", "glm-4.6v"),
        ("glm4v glm4v_text", "chat_template.jinja", "{{ text }}{% endgeneration %}", None),
    ],
)
def test_a_folder_of_llava_gets_that_template_unless_its_own_ends_turns(
    tmp_path: Path, kinds: str, file: str, text: str, template: str | None
) -> None:
    kind, language = kinds.split()
    config = {"model_type": kind, "text_config": {"model_type": language}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / file).write_text(text)
    assert inspect_weights(str(tmp_path), as_named="vlm").chat_template == template
