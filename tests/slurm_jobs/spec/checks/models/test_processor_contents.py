"""Folders of processors, and `chat_template`, which takes a name or a path."""

from pathlib import Path

import pytest

from tests.slurm_jobs.spec.checks import preprocess_spec
from tests.slurm_jobs.spec.conftest import Check

SPEC = preprocess_spec.SPEC.format(name="m.jsonl")
FILES = ("tokenizer.json", "preprocessor_config.json", "processor_config.json")
WHOLE = dict.fromkeys(FILES, "{}")


@pytest.fixture(autouse=True)
def _manifest(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"image": "a.png", "text": "words"}\n')


def folder_with(tmp_path: Path, texts: dict[str, str], *, template: bool = True) -> Path:
    (tmp_path / "proc").mkdir()
    for name, text in texts.items():
        (tmp_path / "proc" / name).write_text(text)
    if template:
        (tmp_path / "proc/chat_template.jinja").touch()
    return tmp_path / "proc"


@pytest.mark.parametrize("missing", FILES)
def test_each_file_that_preprocess_opens_is_needed(
    check: Check, tmp_path: Path, missing: str
) -> None:
    folder = folder_with(tmp_path, WHOLE)
    assert check(SPEC) == []
    (folder / missing).unlink()
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
def test_a_folder_needs_a_chat_template_unless_the_stage_gives_one(
    check: Check, tmp_path: Path, name: str, text: str, is_enough: bool
) -> None:
    path = folder_with(tmp_path, WHOLE, template=False) / name
    (line,) = check(SPEC)
    assert "proc lacks a chat template (chat_template.jinja, or" in line
    assert check(f"{SPEC}      chat_template: llava-1.5\n") == []
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert (check(SPEC) == []) == is_enough


def test_a_template_is_a_name_of_the_package_or_a_file(check: Check, tmp_path: Path) -> None:
    folder_with(tmp_path, WHOLE, template=False)
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    for given in ("llava-1.5", "llava-next-mistral", "own.jinja", "./own.jinja"):
        assert check(f"{SPEC}      chat_template: {given}\n") == []


@pytest.mark.parametrize(
    ("texts", "num_problems"),
    [
        ({"processor_config.json": '{"image_processor": {}}'}, 0),
        *(
            ({"preprocessor_config.json": f'{{"image_processor_type": "{images}"}}'}, num)
            for images, num in (
                *(("Qwen2VLImageProcessor", 0), ("Qwen2VLImageProcessorFast", 0)),
                ("CLIPImageProcessor", 1),
            )
        ),
    ],
)
def test_one_file_of_images_is_enough_if_it_says_all(
    check: Check, tmp_path: Path, texts: dict[str, str], num_problems: int
) -> None:
    folder_with(tmp_path, {"tokenizer.json": "{}", **texts})
    assert len(check(SPEC)) == num_problems


def test_folders_of_a_composed_processor_need_each_its_own_files(
    check: Check, tmp_path: Path
) -> None:
    folder_with(tmp_path, {"tokenizer.json": "{}"})
    (tmp_path / "words").mkdir()
    text = SPEC.replace("processor: proc", "processor: {images: proc, text: words}")
    assert len(check(text)) == 2
    for name in ("proc/preprocessor_config", "proc/config", "words/tokenizer"):
        (tmp_path / f"{name}.json").write_text("{}")
    assert check(text) == []


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_file_of_a_processor_folder_is_answered_with_the_folder(
    check: Check, tmp_path: Path, name: str
) -> None:
    folder_with(tmp_path, {})
    (tmp_path / "proc" / name).write_bytes(b"\xff\xfe{}")
    (line,) = check(SPEC.replace("processor: proc", f"processor: proc/{name}"))
    assert f"proc/{name} is a file, and a folder is needed" in line
    assert line.endswith("name its folder, proc")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"preprocessor_config.json": '{"image_processor_type": "FuyuImageProcessor"}'},
            "proc/preprocessor_config.json: image_processor_type 'FuyuImageProcessor' is not",
        ),
        (
            {"processor_config.json": '{"image_processor": {"image_processor_type": "New"}}'},
            "proc/processor_config.json: image_processor_type 'New' is not understood",
        ),
        (
            {
                "preprocessor_config.json": '{"image_processor_type": "SiglipImageProcessor"}',
                "processor_config.json": '{"processor_class": "NewProcessor"}',
            },
            "proc/processor_config.json: processor_class 'NewProcessor' is not understood with",
        ),
        ({"preprocessor_config.json": '{"image_processor_type": "SiglipImageProcessor"}'}, None),
    ],
)
def test_a_processor_of_an_unknown_kind_is_refused_at_its_line(
    check: Check, tmp_path: Path, texts: dict[str, str], message: str | None
) -> None:
    folder_with(tmp_path, {**WHOLE, **texts})
    lines = check(SPEC)
    assert len(lines) == (message is not None)
    for line in lines:
        assert line.partition(": ")[2].startswith(f"stages.p.config.processor: {message}")
