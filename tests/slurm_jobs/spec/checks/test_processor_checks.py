from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks import preprocess_spec

Check = Callable[..., list[str]]

SPEC = preprocess_spec.SPEC.format(name="m.jsonl")
FILES = ("tokenizer.json", "preprocessor_config.json", "processor_config.json")


@pytest.fixture(autouse=True)
def _manifest(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"image": "a.png", "text": "words"}\n')


def folder_with(tmp_path: Path, **texts: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/chat_template.jinja").touch()
    for name, text in texts.items():
        (tmp_path / "proc" / f"{name}.json").write_text(text)


def test_an_empty_processor_folder_is_told_at_its_line(check: Check, tmp_path: Path) -> None:
    folder_with(tmp_path)
    assert check(SPEC) == [
        (
            "8:18: stages.p.config.processor: proc lacks a tokenizer (tokenizer.json), the image "
            "size (preprocessor_config.json), the number of tokens of an image "
            "(processor_config.json); it must be a processor as Hugging Face saves one"
        )
    ]


@pytest.mark.parametrize("missing", FILES)
def test_each_file_that_preprocess_opens_is_looked_for(
    check: Check, tmp_path: Path, missing: str
) -> None:
    folder_with(tmp_path, **{name.removesuffix(".json"): "{}" for name in FILES})
    assert check(SPEC) == []
    (tmp_path / "proc" / missing).unlink()
    (line,) = check(SPEC)
    assert f"({missing})" in line


@pytest.mark.parametrize(
    ("name", "text", "is_enough"),
    [
        ("chat_template.jinja", "{{ messages }}", True),
        ("chat_template.json", "{}", True),
        ("additional_chat_templates/default.jinja", "", True),
        ("tokenizer_config.json", '{"chat_template": "{{ messages }}"}', True),
        ("processor_config.json", '{"chat_template": "{{ messages }}"}', True),
        ("tokenizer_config.json", '{"eos_token": "</s>"}', False),
    ],
)
def test_a_folder_without_a_chat_template_is_refused_unless_the_stage_gives_one(
    check: Check, tmp_path: Path, name: str, text: str, is_enough: bool
) -> None:
    folder_with(tmp_path, **{file.removesuffix(".json"): "{}" for file in FILES})
    (tmp_path / "proc/chat_template.jinja").unlink()
    (line,) = check(SPEC)
    assert line == (
        "8:18: stages.p.config.processor: proc lacks a chat template (chat_template.jinja, or "
        "`chat_template` of this stage); it must be a processor as Hugging Face saves one"
    )
    assert check(f"{SPEC}      chat_template: llava-1.5\n") == []
    path = tmp_path / "proc" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert (check(SPEC) == []) == is_enough


def test_the_image_size_may_stand_in_the_processors_own_file(check: Check, tmp_path: Path) -> None:
    folder_with(tmp_path, tokenizer="{}", processor_config='{"image_processor": {}}')
    assert check(SPEC) == []


@pytest.mark.parametrize(
    ("images", "num_problems"),
    [("Qwen2VLImageProcessor", 0), ("Qwen2VLImageProcessorFast", 0), ("CLIPImageProcessor", 1)],
)
def test_qwens_folder_on_hubs_needs_no_file_of_the_processor(
    check: Check, tmp_path: Path, images: str, num_problems: int
) -> None:
    described = f'{{"image_processor_type": "{images}"}}'
    folder_with(tmp_path, tokenizer="{}", preprocessor_config=described)
    assert len(check(SPEC)) == num_problems


def test_a_file_is_no_processor_folder(check: Check) -> None:
    (line,) = check(SPEC.replace("processor: proc", "processor: spec.yaml"))
    assert "lacks a tokenizer" in line


COMPOSED = SPEC.replace("processor: proc", "processor: {images: proc, text: words}")
KEY = "stages.p.config.processor"


def test_folders_of_a_composed_processor_are_looked_into_each_for_its_own(
    check: Check, tmp_path: Path
) -> None:
    folder_with(tmp_path, tokenizer="{}")
    (tmp_path / "words").mkdir()
    images, text = check(COMPOSED)
    assert images == (
        f"8:27: {KEY}.images: proc lacks the image size (preprocessor_config.json), the size of "
        f"patches (config.json); it must be that of a SigLIP"
    )
    assert text == (
        f"8:39: {KEY}.text: words lacks a tokenizer (tokenizer.json); it must be that of a "
        f"language model"
    )
    for name in ("proc/preprocessor_config", "proc/config", "words/tokenizer"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert check(COMPOSED) == []


def test_folder_of_a_composed_processor_that_is_named_as_on_a_hub_is_told(check: Check) -> None:
    (images, _) = check(COMPOSED.replace("proc,", "google/siglip-base-patch16-224,"))
    assert f"{KEY}.images: nothing at" in images
    assert "names on a hub are not taken" in images


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_file_of_a_processor_folder_is_answered_with_the_folder(
    check: Check, tmp_path: Path, name: str
) -> None:
    folder_with(tmp_path)
    (tmp_path / "proc" / name).write_bytes(b"\xff\xfe{}")
    (line,) = check(SPEC.replace("processor: proc", f"processor: proc/{name}"))
    assert f"proc/{name} is a file, and a folder is needed" in line
    assert line.endswith("name its folder, proc")
