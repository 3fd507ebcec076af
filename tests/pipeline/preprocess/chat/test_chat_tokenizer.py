"""Which tokens of a conversation are learned, with a real tokenizer and template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.preprocess.chat.answer_spans import TemplateRefusedError
from pipeline.preprocess.chat.chat_tokenizer import ChatTokenizer
from pipeline.preprocess.chat.tokenizer import load_chat_tokenizer
from tests.pipeline.build import CHAT_TEMPLATE, write_processor

ENDS_WITH_THE_TEXT = CHAT_TEMPLATE.replace(
    "{{ '<|end|>' }}{% endgeneration %}", "{% endgeneration %}{{ '<|end|>' }}"
)
ENDS_WITH_A_BLANK = CHAT_TEMPLATE.replace(
    "{{ '<|end|>' }}{% endgeneration %}", "{{ '<|end|> ' }}{% endgeneration %}"
)


def chat(*texts: str) -> list[dict[str, object]]:
    roles = ("user", "assistant") * len(texts)
    return [
        {"role": role, "content": [{"type": "text", "text": text}]}
        for role, text in zip(roles, texts, strict=False)
    ]


def trim_offsets(folder: Path) -> Path:
    """As the tokenizers of GPT-2 and Llama 3 do: no offset holds a blank at its ends."""
    path = folder / "tokenizer.json"
    trim = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": trim}))
    return folder


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChatTokenizer, ChatTokenizer]:
    folder = tmp_path_factory.mktemp("chat")
    whole, trimmed = write_processor(folder / "a"), trim_offsets(write_processor(folder / "b"))
    return load_chat_tokenizer(whole, "<image>"), load_chat_tokenizer(trimmed, "<image>")


def learned(chat_tokenizer: ChatTokenizer, *texts: str) -> str:
    tokens = chat_tokenizer.encode_conversation(chat(*texts))
    return chat_tokenizer.tokenizer.decode(tokens.input_ids[tokens.supervised])


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=8)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.sampled_from([" ", "\n", "ä", "😀", "yes"]) | WORDS, min_size=4, max_size=4))
def test_every_byte_of_each_answer_is_learned_and_no_other(
    tokenizers: tuple[ChatTokenizer, ChatTokenizer], texts: list[str]
) -> None:
    for one in tokenizers:
        assert learned(one, *texts) == f"{texts[1]}<|end|>{texts[3]}<|end|>"


@pytest.mark.parametrize("text", [" a cat", "a cat ", " ", "\n  a cat"])
def test_blank_at_the_edge_of_an_answer_loses_no_label(
    tokenizers: tuple[ChatTokenizer, ChatTokenizer], text: str
) -> None:
    for one in tokenizers:
        assert learned(one, "What?", text, "Sure?", "yes") == f"{text}<|end|>yes<|end|>"


@pytest.mark.parametrize(("text", "num_bytes"), [("kissa ä", 8), ("a cat 😀", 10)])
def test_last_character_keeps_all_its_bytes_where_the_marks_end_with_it(
    tmp_path: Path, tokenizers: tuple[ChatTokenizer, ChatTokenizer], text: str, num_bytes: int
) -> None:
    """Such a template is refused at the start; the rule does not depend on that."""
    tokenizer = tokenizers[0].tokenizer
    ending = type(tokenizer).from_pretrained(
        write_processor(tmp_path / "processor", template=ENDS_WITH_THE_TEXT)
    )
    one = ChatTokenizer(tokenizer=ending, image_token_id=0, pad_token_id=0)
    tokens = one.encode_conversation(chat("What?", text, "Sure?", text))
    assert int(tokens.supervised.sum()) == 2 * num_bytes
    assert learned(one, "What?", text, "Sure?", text) == text + text


def test_only_answers_are_learned_where_the_marks_end_with_a_blank(
    tmp_path: Path,
) -> None:
    folder = write_processor(tmp_path / "processor", template=ENDS_WITH_A_BLANK)
    one = load_chat_tokenizer(trim_offsets(folder), "<image>")
    assert learned(one, "What?", "a cat", "Sure?", "yes") == "a cat<|end|> yes<|end|> "


def test_labels_are_those_of_transformers_where_turns_end_with_a_token(
    tokenizers: tuple[ChatTokenizer, ChatTokenizer],
) -> None:
    messages = chat("What is it?", "Eine Tür, größer als 😀.", "Sure?", "yes, quite")
    theirs = tokenizers[0].tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    ours = tokenizers[0].encode_conversation(messages)
    assert ours.input_ids.tolist() == theirs["input_ids"]
    assert ours.supervised.tolist() == [bool(mask) for mask in theirs["assistant_masks"]]


UNMARKED_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<|assistant|>{% generation %}"
    "{% for c in m['content'] %}{{ c['text'] }}{% endfor %}<|end|>{% endgeneration %}"
    "{% else %}{% if m['role'] == 'user' %}<|user|>{% endif %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""As the demo's: a system message has neither a header nor an end."""


@pytest.mark.parametrize(
    ("template", "roles", "is_refused"),
    [
        (UNMARKED_SYSTEM, "system user system assistant", True),
        (UNMARKED_SYSTEM, "system user assistant", False),
        (UNMARKED_SYSTEM, "user assistant system user assistant", False),  # after `<|end|>`
        (CHAT_TEMPLATE, "system user system assistant", False),
    ],
)
def test_a_later_system_message_that_would_be_words_of_the_user_is_refused(
    tmp_path: Path, template: str, roles: str, is_refused: bool
) -> None:
    folder = write_processor(tmp_path / "processor", template=template)
    one = load_chat_tokenizer(folder, "<image>")
    messages = [
        {"role": role, "content": [{"type": "text", "text": f"words {number}"}]}
        for number, role in enumerate(roles.split())
    ]
    if not is_refused:
        one.encode_conversation(messages)
        return
    for encode in (one.encode_conversation, one.encode_prompt):
        with pytest.raises(TemplateRefusedError, match="system message of turn 3 as part of the u"):
            encode(messages)
