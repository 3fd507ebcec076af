"""What the assistant says, found without marks, is what marks would say."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.preprocess.chat.answer_spans import TemplateRefusedError, marks_answers
from pipeline.preprocess.chat.chat_tokenizer import ChatTokenizer
from pipeline.preprocess.chat.tokenizer import load_chat_tokenizer
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import CHAT_TEMPLATE, write_processor
from tests.pipeline.kinds import (
    INTERNVL_TEMPLATE,
    LLAVA_TEMPLATE,
    QWEN_TEMPLATE,
    SMOLVLM_TEMPLATE,
    make_processor,
    without_marks,
)

IMAGE = {"type": "image"}


def message(role: str, *items: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    return {"role": role, "content": content}


ASKED = [message("user", IMAGE, "What is this?"), message("assistant", "A red cup.")]
MORE = [message("user", "Sure?"), message("assistant", " It is\n", "so. ")]
CHATS = {
    "one answer": ASKED,
    "after a system message": [message("system", "Be brief."), *ASKED],
    "several turns": [*ASKED, *MORE, *MORE],
    "a text alone": MORE,
    "two answers in a row": [*ASKED, message("assistant", "And blue.")],
}


def chats_of(folder: Path, template: str) -> ChatTokenizer:
    return load_chat_tokenizer(write_processor(folder, template=template), "<image>")


@pytest.mark.parametrize("name", CHATS)
def test_the_same_tokens_are_learned_as_with_marks(tmp_path: Path, name: str) -> None:
    marked = chats_of(tmp_path / "marked", CHAT_TEMPLATE)
    plain = chats_of(tmp_path / "plain", without_marks(CHAT_TEMPLATE))
    assert marks_answers(CHAT_TEMPLATE)
    assert not marks_answers(plain.tokenizer.chat_template)
    one, other = (chat.encode_conversation(CHATS[name]) for chat in (marked, plain))
    assert one.supervised.any()
    np.testing.assert_array_equal(other.input_ids, one.input_ids)
    np.testing.assert_array_equal(other.supervised, one.supervised)


@pytest.mark.parametrize(
    ("kind", "marked"),
    [
        ("llava", LLAVA_TEMPLATE),
        ("smolvlm", SMOLVLM_TEMPLATE),
        ("internvl", INTERNVL_TEMPLATE),
        ("qwen2_5_vl", QWEN_TEMPLATE),
    ],
)
def test_templates_of_families_need_no_marks(kind: str, marked: str) -> None:
    found = []
    for template in (marked, without_marks(marked)):
        tokenizer = copy.deepcopy(make_processor(kind).tokenizer)
        tokenizer.chat_template = template
        chat = ChatTokenizer(tokenizer=tokenizer, image_token_id=0, pad_token_id=0)
        found.append([chat.encode_conversation(messages) for messages in CHATS.values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(other.supervised, one.supervised)


PROMPT = "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
HEADER_LEFT_OUT = {
    "after the assistant": (
        "{% endfor %}" + PROMPT,
        "{% endfor %}" + PROMPT.replace("prompt", "prompt and messages[-1]['role'] != 'assistant'"),
        CHATS["two answers in a row"],
    ),
    "of the first turn": (
        "{% endfor %}" + PROMPT,
        PROMPT.replace("if add", "if loop.last and add") + "{% endfor %}",
        [message("assistant", "Hello."), *ASKED],
    ),
}


@pytest.mark.parametrize("case", HEADER_LEFT_OUT)
def test_the_header_of_an_answer_is_never_learned(tmp_path: Path, case: str) -> None:
    """Phi-3-vision's prompt has none after an answer; within a loop there is none at the start."""
    old, new, messages = HEADER_LEFT_OUT[case]
    plain = without_marks(CHAT_TEMPLATE)
    assert plain.count(old) == 1
    chat = chats_of(tmp_path, plain.replace(old, new))
    assert chat.encode_conversation(ASKED).supervised.any()
    with pytest.raises(
        TemplateRefusedError, match=r"^it does .* not with '<\|start\|>assistant\\n'"
    ):
        chat.encode_conversation(messages)


def test_a_prompt_without_the_header_of_an_answer_is_refused(tmp_path: Path) -> None:
    old, new, messages = HEADER_LEFT_OUT["after the assistant"]
    chat = chats_of(tmp_path, CHAT_TEMPLATE.replace(old, new))
    assert len(chat.encode_prompt(messages[:1]).input_ids)
    with pytest.raises(TemplateRefusedError, match="prompt for an answer does not end with '<"):
        chat.encode_prompt(messages[:-1])


def test_a_message_shows_where_texts_differ_and_no_more(tmp_path: Path) -> None:
    said = "{{ item['text'] }}"
    shortening = "{{ item['text'] if message is sameas messages[-1] else 'hm' }}"
    chat = chats_of(tmp_path, without_marks(CHAT_TEMPLATE).replace(said, shortening, 1))
    long = message("assistant", "word " * 2_000)
    with pytest.raises(TemplateRefusedError) as caught:
        chat.encode_conversation([message("user", "What?"), long, *MORE])
    assert "turn 2 cannot be located in its text" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_follows_the_end_of_a_turn_is_not_learned(tmp_path: Path) -> None:
    """As the line break that templates of the kind of ChatML end turns with."""
    chat = chats_of(tmp_path, without_marks(CHAT_TEMPLATE))
    tokens = chat.encode_conversation(ASKED)
    assert chat.tokenizer.decode(tokens.input_ids).endswith("A red cup.<|end|>\n")
    assert chat.tokenizer.decode(tokens.input_ids[tokens.supervised]) == "A red cup.<|end|>"


def test_a_template_that_shortens_earlier_turns_takes_one_answer_alone(tmp_path: Path) -> None:
    said = "{{ item['text'] }}"
    shortened = "{{ item['text'] if message is sameas messages[-1] else 'hm' }}"
    chat = chats_of(tmp_path, without_marks(CHAT_TEMPLATE).replace(said, shortened, 1))
    assert chat.encode_conversation(ASKED).supervised.any()
    with pytest.raises(
        TemplateRefusedError, match=r"turn 2 cannot be located in its text: the text up to it"
    ):
        chat.encode_conversation([*ASKED, *MORE])


def test_a_template_whose_prompt_is_not_how_answers_begin_is_refused(tmp_path: Path) -> None:
    prompt = "{% if add_generation_prompt %}"
    assert prompt in CHAT_TEMPLATE
    other = without_marks(CHAT_TEMPLATE).replace(prompt, prompt + "{{ 'Now: ' }}")
    with pytest.raises(StageConfigError, match=r"put `{% generation %}` before and"):
        chats_of(tmp_path, other)
