"""Chat templates of the shapes that model hubs have, in the files where they have them."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.format import read_dataset_info
from pipeline.preprocess.chat_templates import REPLACEMENTS, prepare_folder
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.stages import PreprocessConfig
from slurm_jobs.shared.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess, write_image
from tests.pipeline.kinds import SMOLVLM_TEMPLATE, make_processor, without_marks, write_kind

IMAGES = (
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
)
EACH_TEXT = "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
LLAVA_1_5 = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    + IMAGES
    + "{% if message['role'] == 'assistant' %}"
    + EACH_TEXT
    + "{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}{% endfor %}{% else %}"
    + EACH_TEXT
    + "{{ part['text'] + ' ' }}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
MISTRAL = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' }}"
    + IMAGES
    + EACH_TEXT
    + "{{ part['text'] }}{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + END }}"
    "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
)
BROKEN_END, WHOLE_END = r"'<\s> '", "'</s> '"
"""LLaVA-NeXT's own files end answers with a text that is no token."""
LLAMA_3 = (
    "{% for message in messages %}{{ '<h>' + message['role'] + '</h>' }}"
    + IMAGES
    + EACH_TEXT
    + "{{ part['text'] + '</s>' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<h>assistant</h>' }}{% endif %}"
)
SMOLVLM = without_marks(SMOLVLM_TEMPLATE)


def processor(folder: Path, kind: str, template: str) -> Path:
    write_kind(kind, folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def encoder_of(folder: Path) -> SampleEncoder:
    images = folder.parent / "images"
    if not images.exists():
        images.mkdir()
        write_image(images / "a.png")
    return SampleEncoder(folder, image_root=images, max_tokens=10_000)


def row_of(folder: Path, *turns: tuple[str, Any]) -> Any:
    """A row of turns; an image is written as `a.png` in a list of items."""
    messages = [{"role": role, "content": content} for role, content in turns]
    path = folder.parent / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    return read_manifest(path)[0]


def rendered(encoder: SampleEncoder, row: Any) -> tuple[str, list[str]]:
    """The text of a row, and what is learned of it."""
    tokens = encoder.tokenise(row)
    decode = encoder.chat.tokenizer.decode
    learned, spans = [], tokens.supervised
    for number, is_learned in enumerate(spans):
        if is_learned and not (number and spans[number - 1]):
            learned.append([])
        if is_learned:
            learned[-1].append(tokens.input_ids[number])
    return decode(tokens.input_ids), [decode(span) for span in learned]


def items(*parts: str) -> list[dict[str, str]]:
    return [
        {"type": "image", "path": part} if part == "a.png" else {"type": "text", "text": part}
        for part in parts
    ]


def test_two_texts_in_a_row_are_one_for_a_template_that_prints_the_first(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "llava_next", MISTRAL.replace("END", WHOLE_END))
    encoder = encoder_of(folder)
    row = row_of(
        folder, ("user", items("a.png", "What", " is it?")), ("assistant", items("A", " cup"))
    )
    text, learned = rendered(encoder, row)
    assert text == "<s>[INST] <image>\nWhat is it? [/INST] A cup</s> "
    assert learned == [" A cup</s>"]


def test_a_row_whose_texts_would_each_end_the_turn_is_rejected(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "llava_next", LLAMA_3)
    encoder = encoder_of(folder)
    good = row_of(folder, ("user", items("a.png", "What", "?")), ("assistant", "A cup"))
    assert rendered(encoder, good)[1] == ["A cup</s>"]
    bad = row_of(folder, ("user", items("Before", "a.png", "after")), ("assistant", "A cup"))
    with pytest.raises(SampleRejectedError, match="ends the turn of the user after each of its"):
        encoder.tokenise(bad)
    with pytest.raises(SampleRejectedError, match="ends the turn of the user after each of its"):
        encoder.encode_prompt(bad)


@pytest.mark.parametrize(
    ("kind", "template", "name"),
    [
        ("llava", LLAVA_1_5, "llava-1.5"),
        ("llava_next", LLAVA_1_5, "llava-1.5"),
        ("llava_next", MISTRAL.replace("END", BROKEN_END), "llava-next-mistral"),
    ],
)
def test_a_template_without_an_end_of_turn_is_refused_with_the_replacement(
    tmp_path: Path, kind: str, template: str, name: str
) -> None:
    folder = processor(tmp_path / "p", kind, template)
    with pytest.raises(
        StageConfigError, match=f"set `chat_template: {name}` in the config of this"
    ):
        encoder_of(folder)
    config = {"manifest": str(tmp_path / "rows.jsonl"), "processor": str(folder)}
    row_of(folder, ("user", items("a.png", "What?")), ("assistant", "A cup"))
    (tmp_path / "a.png").write_bytes((tmp_path / "images" / "a.png").read_bytes())
    (result,), parts = run_preprocess(tmp_path / "prep", {**config, "chat_template": name})
    assert result["num_samples"] == 1
    dataset = run_consolidate(tmp_path / "set", parts)[1]
    copied = encoder_of(dataset / "processor")
    assert copied.chat.tokenizer.chat_template == REPLACEMENTS[name]
    assert read_dataset_info(dataset).num_samples == 1


@pytest.mark.parametrize(
    ("name", "template", "expected"),
    [
        (
            "llava-1.5",
            LLAVA_1_5,
            "USER: <image>\nWhat? ASSISTANT: A cup</s>USER: Sure? ASSISTANT: Yes</s>",
        ),
        (
            "llava-next-mistral",
            MISTRAL.replace("END", BROKEN_END),
            "[INST] <image>\nWhat? [/INST] A cup</s>[INST] Sure? [/INST] Yes</s>",
        ),
    ],
)
def test_a_replacement_renders_questions_as_the_published_template_and_ends_answers(
    tmp_path: Path, name: str, template: str, expected: str
) -> None:
    folder = processor(tmp_path / "p", "llava_next", REPLACEMENTS[name])
    encoder = encoder_of(folder)
    turns = [("user", items("a.png", "What?")), ("assistant", "A cup"), ("user", "Sure?")]
    text, learned = rendered(encoder, row_of(folder, *turns, ("assistant", "Yes")))
    assert text == f"<s>{expected}"
    assert learned == [" A cup</s>", " Yes</s>"]
    asked = [
        {"role": "system", "content": items("Be brief.")},
        {"role": "user", "content": [{"type": "image"}, *items("What?")]},
    ]
    own = make_processor("llava_next").tokenizer.apply_chat_template(
        asked, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    prompt = encoder.chat.encode_prompt(asked).input_ids
    assert encoder.chat.tokenizer.decode(prompt) == f"<s>{own}"


def test_a_template_in_a_file_of_ones_own_is_used(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "llava", LLAVA_1_5)
    own = tmp_path / "own.jinja"
    own.write_text(REPLACEMENTS["llava-1.5"].replace("USER", "Q"))
    encoder_of(write_kind("llava", tmp_path / "q"))
    row_of(folder, ("user", items("a.png", "What?")), ("assistant", "A cup"))
    write_image(tmp_path / "a.png")
    config = {
        "manifest": str(tmp_path / "rows.jsonl"),
        "processor": str(folder),
        "chat_template": str(own),
    }
    (result,), _ = run_preprocess(tmp_path / "prep", config)
    assert result["num_samples"] == 1


def test_a_replacement_beside_a_processor_of_two_folders_is_refused() -> None:
    values = {
        "manifest": "m.csv",
        "processor": {"images": "a", "text": "b"},
        "chat_template": "llava-1.5",
    }
    with pytest.raises(ValueError, match=r"give `processor\.template` instead"):
        build_config(PreprocessConfig, values)


# Where templates are found


def as_jinja(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)


def as_legacy(folder: Path, template: str) -> None:
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))


def in_config(name: str, value: Callable[[str], Any] = str) -> Callable[[Path, str], None]:
    def write(folder: Path, template: str) -> None:
        path = folder / name
        values = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**values, "chat_template": value(template)}))

    return write


def as_list(template: str) -> list[dict[str, str]]:
    return [
        {"name": "default", "template": template},
        {"name": "tool_use", "template": "{{ tools }}"},
    ]


def among_others(folder: Path, template: str) -> None:
    as_jinja(folder, template)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")


PLACES = [
    in_config("processor_config.json"),
    as_legacy,
    as_jinja,
    in_config("tokenizer_config.json"),
]
"""In the order in which AutoProcessor takes them."""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """SmolVLM's processor without a template."""
    folder = write_kind("smolvlm", tmp_path / "bare")
    (folder / "chat_template.jinja").unlink()
    for name in ("processor_config.json", "tokenizer_config.json"):
        values = json.loads((folder / name).read_text())
        values.pop("chat_template", None)
        (folder / name).write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(
    "write",
    [
        *PLACES,
        in_config("tokenizer_config.json", as_list),
        in_config("processor_config.json", lambda text: {"default": text, "rag": "x"}),
        among_others,
    ],
)
def test_a_template_is_found_wherever_transformers_reads_it(
    bare: Path, write: Callable[[Path, str], None]
) -> None:
    write(bare, SMOLVLM)
    row = row_of(bare, ("user", items("a.png", "What?")), ("assistant", "A cup"))
    text, learned = rendered(encoder_of(bare), row)
    asked = "<|im_start|>User:<image>What?<end_of_utterance>"
    assert text == f"{asked}Assistant: A cup<end_of_utterance>"
    assert learned == [" A cup<end_of_utterance>"]


@pytest.mark.parametrize(("first", "second"), itertools.pairwise(PLACES))
def test_of_two_templates_the_one_that_auto_processor_takes_is_used_and_said(
    bare: Path,
    first: Callable[[Path, str], None],
    second: Callable[[Path, str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first(bare, SMOLVLM)
    second(bare, "{{ 'another' }}")
    with caplog.at_level(logging.WARNING):
        assert encoder_of(bare).chat.tokenizer.chat_template == SMOLVLM
    (message,) = [r.getMessage() for r in caplog.records if "chat template" in r.getMessage()]
    assert "is used, as AutoProcessor does" in message
    caplog.clear()
    second(bare, SMOLVLM)
    encoder_of(bare)
    assert not [r for r in caplog.records if "chat template" in r.getMessage()]


def test_auto_processor_takes_the_same_of_two_templates(bare: Path) -> None:
    """The precedence is that of the installed transformers."""
    from transformers.models.auto.processing_auto import ProcessorMixin

    for first, second in itertools.pairwise(PLACES[:3]):
        folder = shutil.copytree(bare, bare.parent / f"two-{first is PLACES[0]}")
        first(folder, SMOLVLM)
        second(folder, "{{ 'another' }}")
        values, _ = ProcessorMixin.get_processor_dict(folder)
        assert values["chat_template"] == SMOLVLM


def test_no_template_and_several_without_a_default_are_said_with_the_remedy(bare: Path) -> None:
    with pytest.raises(StageConfigError, match=r"no `chat_template` \(looked in processor_config"):
        encoder_of(bare)
    in_config("tokenizer_config.json", lambda text: [{"name": "rag", "template": text}])(
        bare, SMOLVLM
    )
    with pytest.raises(
        StageConfigError, match=r"templates \(`rag`\), .* set `chat_template` of the"
    ):
        encoder_of(bare)


# Turns that are empty, repeated or out of the ordinary


EMPTY: Sequence[Any] = ["", [{"type": "text", "text": ""}], []]


@pytest.mark.parametrize("kind", ["smolvlm", "idefics3", "qwen2_vl", "llava"])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_an_empty_turn_is_the_same_however_it_is_written(
    tmp_path: Path, kind: str, role: str
) -> None:
    folder = write_kind(kind, tmp_path / "p")
    encoder = encoder_of(folder)
    end = [("user", "Sure?"), ("assistant", "Yes")]
    before = {"user": [("assistant", "Hm")], "assistant": [("user", "What?")], "system": []}[role]
    start = [("user", "")] if role == "user" else [*before, (role, "")]
    found = set()
    for content in EMPTY:
        turns = [(r, content if text == "" else text) for r, text in start]
        if role == "user":
            turns += before
        found.add(repr(rendered(encoder, row_of(folder, *turns, *end))))
    assert len(found) == 1
    assert "Yes" in found.pop()


@pytest.mark.parametrize("kind", ["smolvlm", "qwen2_vl", "llava_next"])
def test_an_image_alone_and_turns_in_a_row_of_the_user_are_kept(tmp_path: Path, kind: str) -> None:
    folder = write_kind(kind, tmp_path / "p")
    encoder = encoder_of(folder)
    row = row_of(
        folder, ("user", items("a.png")), ("user", "  "), ("user", "What?"), ("assistant", "Cup")
    )
    text, learned = rendered(encoder, row)
    assert text.count(encoder.processor.images.image_token) == 1
    assert "What?" in text
    assert len(learned) == 1


def test_a_text_that_the_template_leaves_out_rejects_the_row(tmp_path: Path) -> None:
    """As a second system message, where a template prints the first alone."""
    first_only = (
        "{% set said = messages[0] if messages[0]['role'] == 'system' else none %}"
        "<|im_start|>{% if said %}System: {{ said['content'][0]['text'] }}<end_of_utterance>\n"
        "{% endif %}"
        + SMOLVLM.removeprefix("<|im_start|>").replace(
            "{% for message in messages %}",
            "{% for message in messages if message['role'] != 'system' %}",
        )
    )
    folder = processor(tmp_path / "p", "smolvlm", first_only)
    encoder = encoder_of(folder)
    turns = [("user", "What?"), ("assistant", " A  cup ")]
    good = row_of(folder, ("system", "Be brief."), *turns)
    assert "Be brief." in rendered(encoder, good)[0]
    bad = row_of(folder, ("system", "Be brief."), ("system", "Be kind."), *turns)
    with pytest.raises(SampleRejectedError, match=r"leaves out a text of the system \(turn 2\)"):
        encoder.tokenise(bad)
    with pytest.raises(SampleRejectedError, match="leaves out a text of the system"):
        encoder.encode_prompt(bad)


# Files that Windows wrote


@pytest.mark.parametrize(
    "names", [["chat_template.jinja"], ["tokenizer_config.json", "processor_config.json"]]
)
def test_a_byte_order_mark_is_in_no_sample_and_no_copy(tmp_path: Path, names: list[str]) -> None:
    folder = processor(tmp_path / "p", "smolvlm", SMOLVLM)
    row_of(folder, ("user", items("a.png", "What?")), ("assistant", "A cup"))
    write_image(tmp_path / "a.png")
    config = {"manifest": str(tmp_path / "rows.jsonl"), "processor": str(folder)}
    _, clean = run_preprocess(tmp_path / "clean", config)
    for name in names:
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    _, parts = run_preprocess(tmp_path / "marked", config)
    (one,), (other,) = (list(out.rglob("*.tar")) for out in (clean, parts))
    assert one.read_bytes() == other.read_bytes()
    dataset = run_consolidate(tmp_path / "set", parts)[1]
    assert all(
        not path.read_bytes().startswith(b"\xef\xbb\xbf")
        for path in (dataset / "processor").iterdir()
    )


def test_line_ends_of_windows_in_a_template_are_in_no_sample(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "smolvlm", SMOLVLM)
    row = row_of(folder, ("user", items("a.png", "What?")), ("assistant", "A cup"))
    clean = rendered(encoder_of(folder), row)
    (folder / "chat_template.jinja").write_bytes(SMOLVLM.replace("\n", "\r\n").encode())
    assert rendered(encoder_of(folder), row) == clean
    (folder / "chat_template.jinja").unlink()
    as_legacy(folder, SMOLVLM.replace("\n", "\r\n"))
    assert rendered(encoder_of(folder), row) == clean


def test_a_template_that_is_no_text_is_said(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "smolvlm", SMOLVLM)
    own = tmp_path / "own.jinja"
    own.write_bytes(b"\xff\xfe{")
    with pytest.raises(StageConfigError, match=r"own\.jinja: not a text in UTF-8"):
        prepare_folder(folder, tmp_path / "copies", str(own))


def test_a_folder_is_no_chat_template(tmp_path: Path) -> None:
    folder = tmp_path / "processor"
    folder.mkdir()
    with pytest.raises(StageConfigError, match="is a folder; name the file of the template"):
        prepare_folder(folder, tmp_path, str(folder))
