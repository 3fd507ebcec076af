"""Built-in chat template: ChatML as in Qwen2.5, with images and marks of answers.

The templates of language models have no slot for images, and do not mark the assistant's
answers. This one does both. It is used only if it renders text chats exactly like the model's
own template, which is tested. It is a module instead of a file in `templates/`, because compute
nodes have only this package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.preprocess.chat.answer_spans import TemplateRefusedError
from pipeline.preprocess.chat.chat_tokenizer import render

TURN_TOKENS = ("<|im_start|>", "<|im_end|>")
"""Marks before and after each turn; the second ends answers."""
_BEGIN, _END = TURN_TOKENS
_DEFAULT_SYSTEM = """\
{%- if messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\n' + SYSTEM_PROMPT + '<|im_end|>\\n' -}}
{%- endif -%}
"""
_TEMPLATE = """\
{#- ChatML with images, and marks around what the assistant says. -#}
{%- macro show(content) -%}
{%- if content is string -%}
{{- content -}}
{%- else -%}
{%- for item in content -%}
{%- if item['type'] == 'image' -%}
{{- IMAGE_TOKEN -}}
{%- else -%}
{{- item['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
DEFAULT_SYSTEM\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['role'] == 'assistant' -%}
{%- generation -%}
{{- show(message['content']) + '<|im_end|>' -}}
{%- endgeneration -%}
{%- else -%}
{{- show(message['content']) + '<|im_end|>' -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
Turn = tuple[str, str]
"""Role and text."""
_CHATML_QUESTION: Turn = ("user", "testquestion")
_TRIED: tuple[tuple[Turn, ...], ...] = (
    (_CHATML_QUESTION,),
    (_CHATML_QUESTION, ("assistant", " of two\nlines \n")),
    (_CHATML_QUESTION, ("assistant", "testanswer"), ("user", "\n testdoubt ")),
    (("system", "testrule\n"), _CHATML_QUESTION, ("assistant", "testanswer")),
    (
        ("system", "testrule"),
        _CHATML_QUESTION,
        ("assistant", "yes"),
        ("user", "so?"),
        ("assistant", "so"),
    ),
)


def make_chatml(image_token: str, system_prompt: str | None) -> str:
    """Return the template's text.

    Args:
        image_token: Token of an image, printed once for each.
        system_prompt: Comes first in chats without a system message; None for nothing.
    """
    default = ""
    if system_prompt is not None:
        literal = json.dumps(system_prompt, ensure_ascii=False)  # Jinja takes the same escapes
        default = _DEFAULT_SYSTEM.replace("SYSTEM_PROMPT", literal)
    text = _TEMPLATE.replace("IMAGE_TOKEN", json.dumps(image_token, ensure_ascii=False))
    return text.replace("DEFAULT_SYSTEM", default)


def find_system_prompt(template: str, special_tokens: Mapping[str, Any]) -> str | None:
    """Return the default system prompt of a model's own template, if it is ChatML."""
    rendered = _render(template, (_CHATML_QUESTION,), special_tokens, as_items=False)
    first, last = f"{_BEGIN}system\n", f"{_END}\n{_BEGIN}user\n{_CHATML_QUESTION[1]}"
    if rendered is None or not rendered.startswith(first) or last not in rendered:
        return None
    return rendered[len(first) : rendered.index(last)]


def find_difference(template: str, ours: str, special_tokens: Mapping[str, Any]) -> str | None:
    """Describe how two templates differ on text chats; None if they do not.

    Conversations that the model's own template refuses are not compared.
    """
    for turns in _TRIED:
        expected = _render(template, turns, special_tokens, as_items=False)
        rendered = _render(ours, turns, special_tokens, as_items=True)
        if expected is None and turns != _TRIED[0]:
            continue
        if rendered != expected:
            roles = ", ".join(role for role, _ in turns)
            return f"for {roles} it prints {expected!r}, ChatML {rendered!r}"
    return None


def _render(
    template: str, turns: Sequence[Turn], special_tokens: Mapping[str, Any], *, as_items: bool
) -> str | None:
    """Render with the prompt for an answer where it is the assistant's turn; None if refused."""
    messages = [
        {"role": role, "content": [{"type": "text", "text": text}] if as_items else text}
        for role, text in turns
    ]
    try:
        text, _ = render(
            template, messages, special_tokens, add_generation_prompt=turns[-1][0] == "user"
        )
    except TemplateRefusedError:
        return None
    return text
