"""The built-in chat template, beside one that is written as Qwen2.5's."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.preprocess.chat.chat_tokenizer import render
from pipeline.preprocess.chat.chatml import find_difference, find_system_prompt, make_chatml
from tests.pipeline.models.tiny_towers import QWEN25_TEMPLATE

IMAGE = "<|image_pad|>"
PROMPT = 'You are Qwen, created by "somebody".'
CHATS = (
    [("user", "What?")],
    [("user", "What?"), ("assistant", "That.")],
    [("system", "Be brief."), ("user", "What?"), ("assistant", "That.")],
    [("user", " a\n"), ("assistant", "\tb {{ c }} "), ("user", "{% d %}"), ("assistant", "'é'🙂")],
    [("user", "a"), ("assistant", "b"), ("system", "c"), ("user", "d")],
)


def ours(chat: list[tuple[str, str]], **options: bool) -> tuple[str, Any]:
    """The built-in template's text and marks, of items."""
    messages = [{"role": r, "content": [{"type": "text", "text": t}]} for r, t in chat]
    return render(make_chatml(IMAGE, PROMPT), messages, {}, **options)


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_chats_of_text_are_rendered_as_qwens_own_template_does(
    chat: list[tuple[str, str]], add_generation_prompt: bool
) -> None:
    messages = [{"role": role, "content": text} for role, text in chat]
    expected, _ = render(QWEN25_TEMPLATE, messages, {}, add_generation_prompt=add_generation_prompt)
    assert ours(chat, add_generation_prompt=add_generation_prompt)[0] == expected
    found, _ = render(
        make_chatml(IMAGE, PROMPT), messages, {}, add_generation_prompt=add_generation_prompt
    )
    assert found == expected


@pytest.mark.parametrize("chat", CHATS)
def test_marks_hold_each_answer_with_its_end_of_turn_and_nothing_else(
    chat: list[tuple[str, str]],
) -> None:
    text, spans = ours(chat, return_assistant_tokens_mask=True)
    said = [words + "<|im_end|>" for role, words in chat if role == "assistant"]
    assert [text[start:end] for start, end in spans] == said


def test_images_stand_where_the_message_has_them() -> None:
    items = [{"type": "image"}, {"type": "text", "text": " left,\n"}, {"type": "image"}]
    text, _ = render(make_chatml(IMAGE, None), [{"role": "user", "content": items}], {})
    assert text == f"<|im_start|>user\n{IMAGE} left,\n{IMAGE}<|im_end|>\n"


@pytest.mark.parametrize("prompt", ["", "a 'b' \"c\"", "x\n\\n {{ y }} {% z %}", "é🙂\t"])
def test_system_prompt_is_found_in_the_models_own_template_and_kept(prompt: str) -> None:
    own = make_chatml(IMAGE, prompt)
    assert find_system_prompt(own, {}) == prompt
    assert find_difference(own, make_chatml(IMAGE, prompt), {}) is None


def test_template_without_a_system_prompt_gets_none() -> None:
    assert find_system_prompt(make_chatml(IMAGE, None), {}) is None
    assert find_system_prompt("{{ raise_exception('no') }}", {}) is None


@pytest.mark.parametrize(
    "change",
    [
        ("+ message.content +", "+ message.content | trim +"),
        ("messages[0]['role'] == 'system'", "false"),
        ("+ '<|im_end|>' + '\\n' }}", "+ '<|im_end|>' }}"),
    ],
)
def test_template_that_renders_otherwise_is_noticed(change: tuple[str, str]) -> None:
    assert change[0] in QWEN25_TEMPLATE
    own = QWEN25_TEMPLATE.replace(*change)
    assert find_difference(own, make_chatml(IMAGE, PROMPT), {})


def test_template_that_refuses_chats_is_compared_on_the_others() -> None:
    refusing = "{%- if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    assert find_difference(refusing + QWEN25_TEMPLATE, make_chatml(IMAGE, PROMPT), {}) is None
    always = "{{ raise_exception('never') }}"
    assert "for user it prints None" in str(find_difference(always, make_chatml(IMAGE, None), {}))
