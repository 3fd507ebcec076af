"""Chat templates of the shapes that model hubs have, in the files where they have them."""

from __future__ import annotations

import copy
import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.preprocess.chat.chat_templates import REPLACEMENTS, prepare_folder
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import PreprocessConfig
from tests.pipeline.build import run_consolidate, run_preprocess, write_image
from tests.pipeline.kinds import (
    GLM_TEMPLATE,
    SMOLVLM_TEMPLATE,
    make_processor,
    without_marks,
    write_kind,
)

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
FIRST_SYSTEM_ALONE = (
    "{% set said = messages[0] if messages[0]['role'] == 'system' else none %}"
    "<|im_start|>{% if said %}System: {{ said['content'][0]['text'] }}<end_of_utterance>{% endif %}"
    + SMOLVLM.removeprefix("<|im_start|>").replace(
        "for message in messages", "for message in messages if message['role'] != 'system'"
    )
)
Turn = tuple[str, Any]
Write = Callable[[Path, str], None]


def processor(folder: Path, kind: str, template: str) -> Path:
    write_kind(kind, folder)
    as_jinja(folder, template)
    return folder


def encoder_of(folder: Path) -> SampleEncoder:
    return SampleEncoder(folder, image_root=folder.parent, max_tokens=10_000)


def row_of(folder: Path, *turns: Turn) -> Any:
    """A row of turns beside the processor's folder, with its image `a.png`."""
    write_image(folder.parent / "a.png")
    messages = [{"role": role, "content": content} for role, content in turns]
    path = folder.parent / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}) + "\n")
    return read_manifest(path)[0]


def preprocess(folder: Path, name: str = "prep", **config: str) -> Path:
    """The parts of one row, made with the processor in `folder`."""
    row_of(folder, WHAT, CUP)
    config |= {"manifest": str(folder.parent / "rows.jsonl"), "processor": str(folder)}
    (result,), parts = run_preprocess(folder.parent / name, config)
    assert result["num_samples"] == 1
    return parts


def rendered(folder: Path, *turns: Turn) -> tuple[str, list[str]]:
    """The text of a row, and what is learned of it."""
    encoder = encoder_of(folder)
    tokens = encoder.tokenise(row_of(folder, *turns))
    decode = encoder.chat.tokenizer.decode
    pairs = zip(tokens.supervised, tokens.input_ids, strict=True)
    spans = itertools.groupby(pairs, key=lambda pair: bool(pair[0]))
    learned = [decode([token for _, token in span]) for is_learned, span in spans if is_learned]
    return decode(tokens.input_ids), learned


def items(*parts: str) -> list[dict[str, str]]:
    return [
        {"type": "image", "path": part} if part == "a.png" else {"type": "text", "text": part}
        for part in parts
    ]


WHAT, CUP, SURE, YES = (
    *(("user", items("a.png", "What?")), ("assistant", "A cup")),
    *(("user", "Sure?"), ("assistant", "Yes")),
)
BRIEF = ("system", "Be brief.")


def test_two_texts_in_a_row_are_one_for_a_template_that_prints_the_first(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "llava_next", MISTRAL.replace("END", WHOLE_END))
    turns = ("user", items("a.png", "What", " is it?")), ("assistant", items("A", " cup"))
    text = "<s>[INST] <image>\nWhat is it? [/INST] A cup</s> "
    assert rendered(folder, *turns) == (text, [" A cup</s>"])


@pytest.mark.parametrize(
    ("kind", "template", "good", "bad", "words"),
    [
        (
            *("llava_next", LLAMA_3),
            [("user", items("a.png", "What", "?")), CUP],
            [("user", items("Before", "a.png", "after")), CUP],
            "ends the turn of the user after each of its",
        ),
        (
            *("smolvlm", FIRST_SYSTEM_ALONE),
            [BRIEF, WHAT, ("assistant", " A  cup ")],
            [BRIEF, ("system", "Be kind."), WHAT, ("assistant", " A  cup ")],
            r"leaves out a text of the system \(turn 2\)",
        ),
    ],
    ids=["each text ends the turn", "the first system message alone"],
)
def test_a_row_that_a_template_does_not_print_as_one_turn_is_rejected(
    tmp_path: Path, kind: str, template: str, good: list[Turn], *, bad: list[Turn], words: str
) -> None:
    folder = processor(tmp_path / "p", kind, template)
    text, learned = rendered(folder, *good)
    assert ("Be brief." in text, len(learned)) == (BRIEF in good, 1)
    encoder, row = encoder_of(folder), row_of(folder, *bad)
    for encode in (encoder.tokenise, encoder.encode_prompt):
        with pytest.raises(SampleRejectedError, match=words):
            encode(row)


@pytest.mark.parametrize(
    ("kind", "template", "name", "is_file"),
    [
        ("llava", LLAVA_1_5, "llava-1.5", False),
        ("llava", LLAVA_1_5, "llava-1.5", True),
        ("llava_next", LLAVA_1_5, "llava-1.5", False),
        ("llava_next", MISTRAL.replace("END", BROKEN_END), "llava-next-mistral", False),
    ],
    ids=["LLaVA", "a file of one's own", "LLaVA-NeXT", "Mistral"],
)
def test_a_template_without_an_end_of_turn_is_refused_with_the_replacement(
    tmp_path: Path, kind: str, template: str, name: str, *, is_file: bool
) -> None:
    folder = processor(tmp_path / "p", kind, template)
    words = f"set `chat_template: {name}` in the config of this"
    with pytest.raises(StageConfigError, match=words):
        encoder_of(folder)
    own = tmp_path / "own.jinja"
    own.write_text(REPLACEMENTS[name])
    parts = preprocess(folder, chat_template=str(own) if is_file else name)
    dataset = run_consolidate(tmp_path / "set", parts)[1]
    copied = encoder_of(dataset / "processor")
    assert copied.chat.tokenizer.chat_template == REPLACEMENTS[name]
    assert read_dataset_info(dataset).num_samples == 1


@pytest.mark.parametrize(
    ("name", "template", "question"),
    [
        ("llava-1.5", LLAVA_1_5, "USER: {} ASSISTANT:"),
        ("llava-next-mistral", MISTRAL.replace("END", BROKEN_END), "[INST] {} [/INST]"),
    ],
    ids=["llava-1.5", "llava-next-mistral"],
)
def test_a_replacement_renders_like_its_template_and_ends_answers(
    tmp_path: Path, name: str, template: str, question: str
) -> None:
    folder = processor(tmp_path / "p", "llava_next", REPLACEMENTS[name])
    text, learned = rendered(folder, WHAT, CUP, SURE, YES)
    first, second = question.format("<image>\nWhat?"), question.format("Sure?")
    assert text == f"<s>{first} A cup</s>{second} Yes</s>"
    assert learned == [" A cup</s>", " Yes</s>"]
    asked = [
        {"role": "system", "content": items("Be brief.")},
        {"role": "user", "content": [{"type": "image"}, *items("What?")]},
    ]
    own = make_processor("llava_next").tokenizer.apply_chat_template(
        asked, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    chat = encoder_of(folder).chat
    assert chat.tokenizer.decode(chat.encode_prompt(asked).input_ids) == f"<s>{own}"


THINKING = (
    "{%- set last = messages | map(attribute='role') | list -%}"
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\n' -}}"
    "{%- if m.role == 'assistant' and 'user' not in last[loop.index:] -%}"
    "{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}"
    "{%- for item in m.content -%}{%- if item.type == 'image' -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- item.text | trim -}}{%- endif -%}{%- endfor -%}{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}"
    "{{- '<think>\n\n</think>\n\n' -}}{%- else -%}{{- '<think>\n' -}}{%- endif -%}{%- endif -%}"
)
"""As Qwen3.5's: a thought before the answers after the last question, and in the prompt."""


def test_qwen_3_5_is_trained_as_if_it_were_asked_without_thinking(tmp_path: Path) -> None:
    own = copy.deepcopy(make_processor("qwen3_5"))
    own.tokenizer.add_tokens(["\n\n", "<think>", "</think>"])  # one token each, as in Qwen's
    own.chat_template = own.tokenizer.chat_template = THINKING
    own.save_pretrained(tmp_path / "p")
    with pytest.raises(StageConfigError):
        encoder_of(tmp_path / "p")
    own.chat_template = own.tokenizer.chat_template = REPLACEMENTS["qwen3.5"]
    own.save_pretrained(tmp_path / "q")
    text, learned = rendered(tmp_path / "q", WHAT, CUP, SURE, YES)
    assert learned == ["A cup<|im_end|>", "Yes<|im_end|>"]
    assert text.count("<|im_start|>assistant\n<think>\n\n</think>\n\n") == 2
    asked = [
        {"role": "system", "content": items("Be brief.")},
        {"role": "user", "content": [{"type": "image"}, *items("What?")]},
    ]
    published = own.tokenizer.apply_chat_template(
        asked,
        chat_template=THINKING,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    chat = encoder_of(tmp_path / "q").chat
    assert chat.tokenizer.decode(chat.encode_prompt(asked).input_ids) == published


def test_a_chat_template_for_a_processor_of_two_folders_is_refused() -> None:
    values = {"manifest": "m.csv", "processor": {"images": "a", "text": "b"}}
    with pytest.raises(ValueError, match=r"give `processor\.template` instead"):
        build_config(PreprocessConfig, {**values, "chat_template": "llava-1.5"})


def as_jinja(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template)


def in_json(name: str, value: Callable[[str], Any] = str) -> Write:
    def write(folder: Path, template: str) -> None:
        path = folder / name
        values = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**values, "chat_template": value(template)}))

    return write


def as_list(template: str) -> list[dict[str, str]]:
    templates = {"default": template, "tool_use": "{{ tools }}"}
    return [{"name": name, "template": text} for name, text in templates.items()]


def among_others(folder: Path, template: str) -> None:
    as_jinja(folder, template)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ documents }}")


as_legacy = in_json("chat_template.json")
PLACES = [in_json("processor_config.json"), as_legacy, as_jinja, in_json("tokenizer_config.json")]
"""In the order in which AutoProcessor takes them."""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """SmolVLM's processor without a template."""
    folder = write_kind("smolvlm", tmp_path / "bare")
    (folder / "chat_template.jinja").unlink()
    return folder


@pytest.mark.parametrize(
    "write",
    [
        *PLACES,
        in_json("tokenizer_config.json", as_list),
        in_json("processor_config.json", lambda text: {"default": text, "rag": "x"}),
        among_others,
    ],
)
def test_a_template_is_found_wherever_transformers_reads_it(bare: Path, write: Write) -> None:
    write(bare, SMOLVLM)
    asked = "<|im_start|>User:<image>What?<end_of_utterance>Assistant:"
    answer = " A cup<end_of_utterance>"
    assert rendered(bare, WHAT, CUP) == (f"{asked}{answer}", [answer])


@pytest.mark.parametrize(("first", "second"), itertools.pairwise(PLACES))
def test_the_template_that_auto_processor_takes_is_used_and_reported(
    bare: Path, first: Write, second: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """The precedence is that of the installed transformers."""
    from transformers.models.auto.processing_auto import ProcessorMixin

    first(bare, SMOLVLM)
    second(bare, "{{ 'another' }}")
    with caplog.at_level(logging.WARNING):
        assert encoder_of(bare).chat.tokenizer.chat_template == SMOLVLM
    assert ProcessorMixin.get_processor_dict(bare)[0]["chat_template"] == SMOLVLM
    (message,) = [r.getMessage() for r in caplog.records if "chat template" in r.getMessage()]
    assert "is used, as AutoProcessor does" in message
    caplog.clear()
    second(bare, SMOLVLM)
    encoder_of(bare)
    assert not [r for r in caplog.records if "chat template" in r.getMessage()]


def test_a_missing_or_ambiguous_template_is_reported_with_the_remedy(bare: Path) -> None:
    with pytest.raises(StageConfigError, match=r"no `chat_template` \(looked in processor_config"):
        encoder_of(bare)
    in_json("tokenizer_config.json", lambda text: as_list(text)[1:])(bare, SMOLVLM)
    words = r"templates \(`tool_use`\), .* set `chat_template` of the"
    with pytest.raises(StageConfigError, match=words):
        encoder_of(bare)


@pytest.mark.parametrize("kind", ["smolvlm", "idefics3", "internvl", "qwen2_vl", "llava"])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_an_empty_turn_is_the_same_however_it_is_written(
    tmp_path: Path, kind: str, role: str
) -> None:
    folder = write_kind(kind, tmp_path / "p")
    found = set()
    for empty in ("", items(""), []):
        start = {
            "user": [("user", "What?"), ("assistant", "Hm"), ("user", empty), ("assistant", "Hm")],
            "assistant": [("user", "What?"), ("assistant", empty)],
            "system": [("system", empty)],
        }[role]
        found.add(repr(rendered(folder, *start, SURE, YES)))
    assert len(found) == 1
    assert "Yes" in found.pop()


@pytest.mark.parametrize("kind", ["smolvlm", "internvl", "qwen2_vl", "llava_next"])
def test_an_image_alone_and_turns_in_a_row_of_the_user_are_kept(tmp_path: Path, kind: str) -> None:
    folder = write_kind(kind, tmp_path / "p")
    asked = [("user", items("a.png")), ("user", "  "), ("user", "What?")]
    text, learned = rendered(folder, *asked, CUP)
    assert text.count(encoder_of(folder).processor.images.image_token) == 1
    assert ("What?" in text, len(learned)) == (True, 1)


@pytest.mark.parametrize(
    "names", [["chat_template.jinja"], ["tokenizer_config.json", "processor_config.json"]]
)
def test_a_byte_order_mark_is_in_no_sample_and_no_copy(tmp_path: Path, names: list[str]) -> None:
    folder = processor(tmp_path / "p", "smolvlm", SMOLVLM)
    clean = preprocess(folder, "clean")
    for name in names:
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    marked = preprocess(folder, "marked")
    (one,), (other,) = (list(out.rglob("*.tar")) for out in (clean, marked))
    assert one.read_bytes() == other.read_bytes()
    dataset = run_consolidate(tmp_path / "set", marked)[1]
    copies = [path.read_bytes() for path in (dataset / "processor").iterdir()]
    assert not any(data.startswith(b"\xef\xbb\xbf") for data in copies)


def test_line_ends_of_windows_in_a_template_are_in_no_sample(tmp_path: Path) -> None:
    folder = processor(tmp_path / "p", "smolvlm", SMOLVLM)
    clean = rendered(folder, WHAT, CUP)
    (folder / "chat_template.jinja").write_bytes(SMOLVLM.replace("\n", "\r\n").encode())
    assert rendered(folder, WHAT, CUP) == clean
    (folder / "chat_template.jinja").unlink()
    as_legacy(folder, SMOLVLM.replace("\n", "\r\n"))
    assert rendered(folder, WHAT, CUP) == clean


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_bytes(b"\xff\xfe{"), r"own\.jinja: not a text in UTF-8"),
        (Path.mkdir, "is a folder; name the file of the template"),
    ],
    ids=["no text", "a folder"],
)
def test_a_chat_template_that_is_no_file_of_text_is_refused(
    tmp_path: Path, write: Callable[[Path], object], words: str
) -> None:
    write(tmp_path / "own.jinja")
    with pytest.raises(StageConfigError, match=words):
        prepare_folder(tmp_path, tmp_path / "copies", str(tmp_path / "own.jinja"))


@pytest.mark.parametrize("name", ["glm-4v", "glm-4.6v"])
def test_the_mark_of_a_question_ends_glms_answers(tmp_path: Path, name: str) -> None:
    own = copy.deepcopy(make_processor("glm4v"))
    own.tokenizer.add_tokens(["<think>", "</think>"])
    own.tokenizer.eos_token = "<|endoftext|>"
    published = without_marks(GLM_TEMPLATE).replace("<|user|>{% else", "{% else")
    is_after_question = "{% elif loop.first or loop.previtem['role'] != 'assistant' %}"
    published = published.replace(is_after_question, "{% else %}")
    own.chat_template = own.tokenizer.chat_template = published
    own.save_pretrained(tmp_path / "p")
    with pytest.raises(StageConfigError, match="which does not end with the tokenizer's"):
        encoder_of(tmp_path / "p")
    dataset = run_consolidate(tmp_path / "set", preprocess(tmp_path / "p", chat_template=name))[1]
    text, learned = rendered(dataset / "processor", WHAT, CUP, SURE, YES)
    thought = "<think></think>\n" if name == "glm-4.6v" else ""
    assert text == (
        "[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>What?"
        f"<|assistant|>\n{thought}A cup<|user|>\nSure?<|assistant|>\n{thought}Yes<|user|>"
    )
    assert learned == ["A cup<|user|>", "Yes<|user|>"]
