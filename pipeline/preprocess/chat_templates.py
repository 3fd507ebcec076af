"""Chat templates: where they come from, what they must do, and replacements."""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import xxhash

from pipeline.preprocess.chat_tokenizer import (
    ChatMessages,
    ChatTokenizer,
    TemplateRefusedError,
    TokenSequence,
    count_token,
    marks_answers,
    render,
)
from slurm_jobs.shared.configs.stages import ChatTemplateName, ImagePixels
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.files import dump_json, make_private_dir, write_bytes_atomic
from slurm_jobs.shared.processors.folder import check_folder, find_images, read_folder_json
from slurm_jobs.shared.processors.pixel_limits import PixelLimitsError, with_image_pixels
from slurm_jobs.shared.processors.processor_files import processor_files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# Built-in chat template: ChatML as in Qwen2.5, with images and marks of answers.
#
# The templates of language models have no slot for images, and do not mark the assistant's
# answers. This one does both. It is used only if it renders text chats exactly like the model's
# own template, which is tested. It is a module instead of a file in `templates/`, because compute
# nodes have only this package.


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


# Checksum of a processor folder, and processor folders that a stage writes.


def hash_folder(folder: Path) -> str:
    """Return xxh3-128 over the names and bytes of a folder's files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in processor_files(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def write_folder(files: Mapping[str, bytes], root: Path) -> Path:
    """Write a processor folder below `root`, named by its content, and return it.

    Array tasks that write it at the same time write the same bytes.
    """
    digest = xxhash.xxh3_64()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    folder = root / digest.hexdigest()
    make_private_dir(folder)
    for name, data in files.items():
        write_bytes_atomic(folder / name, data)
    return folder


def write_with_pixels(source: Path, pixels: ImagePixels, root: Path) -> Path:
    """Write a copy of a processor folder with the user's limits on resized images.

    Every file with an image processor gets them, so that all readers of the copy agree.

    Raises:
        StageConfigError: the processor has no such limits, or they leave no size for an image.
    """
    check_folder(source)
    processor_file, own_file = (
        source / name for name in ("processor_config.json", "preprocessor_config.json")
    )
    processor = read_folder_json(processor_file)
    _, images_file = find_images(processor, processor_file)
    files = {path.name: path.read_bytes() for path in processor_files(source)}
    try:
        if processor.get("image_processor"):
            images = with_image_pixels(processor["image_processor"], pixels)
            whole = {**processor, "image_processor": images}
            files[processor_file.name] = dump_json(whole).encode()
        if values := read_folder_json(own_file):
            files[own_file.name] = dump_json(with_image_pixels(values, pixels)).encode()
    except PixelLimitsError as error:
        message = f"{images_file}: {error}"
        raise StageConfigError(message) from error
    return write_folder(files, root)


# Chat templates: the one of a processor folder, and replacements for some that cannot train.
#
# The precedence is that of `AutoProcessor` in transformers 5 (`processing_utils.py`,
# `get_processor_dict`): a key of processor_config.json, `chat_template.json`,
# `chat_template.jinja` with `additional_chat_templates/`, and last the tokenizer's own.
#
# The replacements are for templates that print no end of turn after an answer. They render
# questions like the published templates, and end each answer with the tokenizer's `eos_token`, as
# the models were trained. They are a module because compute nodes have only this package.


log = logging.getLogger(__name__)

_BOM = "\ufeff"
_KEY = "chat_template"
_PROCESSOR = "processor_config.json"
_TOKENIZER = "tokenizer_config.json"
_LEGACY = "chat_template.json"
_JINJA = "chat_template.jinja"
_MORE_DIR = "additional_chat_templates"
_SET_TEMPLATE = "set `chat_template` of the stage to a file with the one to use"

_IMAGES = (
    "{%- for item in message['content'] if item['type'] == 'image' -%}"
    "{{- '<image>\\n' -}}{%- endfor -%}"
)
_TEXTS = (
    "{%- for item in message['content'] if item['type'] == 'text' -%}"
    "{{- item['text'] -}}{%- if not loop.last -%}{{- ' ' -}}{%- endif -%}{%- endfor -%}"
)
_LEARNED = "{%- generation -%}{{- ' ' -}}" + _TEXTS + "{{- eos_token -}}{%- endgeneration -%}"

REPLACEMENTS: Mapping[ChatTemplateName, str] = {
    "llava-1.5": (
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}{{- 'ASSISTANT:' -}}" + _LEARNED + "{%- else -%}"
        "{%- if message['role'] != 'system' -%}{{- message['role'].upper() + ': ' -}}{%- endif -%}"
        + _IMAGES
        + _TEXTS
        + "{{- ' ' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}"
    ),
    "llava-next-mistral": (
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}"
        + _LEARNED
        + "{%- elif message['role'] == 'system' -%}"
        "{{- '<<SYS>>\\n' -}}" + _TEXTS + "{{- '\\n<</SYS>>\\n\\n' -}}"
        "{%- else -%}{{- '[INST] ' -}}" + _IMAGES + _TEXTS + "{{- ' [/INST]' -}}"
        "{%- endif -%}{%- endfor -%}"
    ),
}
"""Templates by the name in the stage's `chat_template`. `llava-1.5` is also for LLaVA-NeXT with
Vicuna."""
assert set(REPLACEMENTS) == set(get_args(ChatTemplateName))


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark and with Unix line ends.

    Raises:
        StageConfigError: it is a folder, or not UTF-8.
    """
    if path.is_dir():
        message = f"{path} is a folder; name the file of the template in it"
        raise StageConfigError(message)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start})"
        raise StageConfigError(message) from error


def find_template(folder: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[str, Path]:
    """Return the chat template that `AutoProcessor` takes from a processor folder, and its file.

    Raises:
        StageConfigError: there is none, or several named ones without `default`.
    """
    given = _given(folder, tokenizer)
    if not given:
        message = (
            f"{folder}: no `chat_template` (looked in {_PROCESSOR}, {_LEGACY}, {_JINJA} and "
            f"{_TOKENIZER}); add {_JINJA} with the one that the model was trained with, or "
            f"{_SET_TEMPLATE}"
        )
        raise StageConfigError(message)
    place, value = given[0]
    text = _the_default(value, place)
    others = []
    for file, other in given[1:]:
        with suppress(StageConfigError):  # several without a default: none is usable
            if _the_default(other, file) != text:
                others.append(file.name)
    if others:
        log.warning(
            "%s: the chat template of %s is used, as AutoProcessor does; %s differs from it",
            folder,
            place.name,
            " and ".join(others),
        )
    return text, place


def _given(folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[tuple[Path, Any]]:
    """Return all chat templates of a folder in the order of precedence, each with its file."""
    legacy, jinja = folder / _LEGACY, folder / _JINJA
    more = {path.stem: read_text(path) for path in sorted((folder / _MORE_DIR).glob("*.jinja"))}
    if legacy.exists() and more:
        message = (
            f"{folder}: {_LEGACY} and {_MORE_DIR}/ exclude each other, and AutoProcessor refuses "
            f"such a folder: move the template of {_LEGACY} to {_JINJA}"
        )
        raise StageConfigError(message)
    files = {**more, **({"default": read_text(jinja)} if jinja.exists() else {})}
    values: list[tuple[Path, Any]] = [
        (folder / _PROCESSOR, read_folder_json(folder / _PROCESSOR).get(_KEY)),
        (legacy, read_folder_json(legacy).get(_KEY)),
        (jinja, files),
        (folder / _TOKENIZER, read_folder_json(folder / _TOKENIZER).get(_KEY)),
    ]
    given = [(place, value) for place, value in values if value]
    # A tokenizer that was changed after loading has a template that is in no file.
    template = tokenizer.chat_template
    return given or ([(folder / _TOKENIZER, template)] if template else [])


def _the_default(value: Any, place: Path) -> str:
    """Return the one template in a value: a text, a mapping by name, or a list of both."""
    if isinstance(value, str):
        return value.removeprefix(_BOM)
    named = value
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        named = {each.get("name"): each.get("template") for each in value}
    if isinstance(named, Mapping) and isinstance(named.get("default"), str):
        return str(named["default"]).removeprefix(_BOM)
    if isinstance(named, Mapping):
        names = ", ".join(f"`{name}`" for name in named)
        message = (
            f"{place}: several chat templates ({names}), and none is named `default`, so "
            f"AutoProcessor takes none: {_SET_TEMPLATE}"
        )
    else:
        message = f"{place}: `{_KEY}` is a {type(value).__name__}, expected a text"
    raise StageConfigError(message)


def prepare_folder(folder: Path, root: Path, chat_template: str | None) -> Path:
    """Return the processor folder to use: the given one, or a corrected copy in `root`.

    A copy is made to replace the chat template, or to remove byte order marks: with one,
    templates would begin every sample with U+FEFF, and JSON files could not be loaded. The data
    set and the exported model get the copy, so that they agree with the samples.

    Args:
        folder: Folder in the config.
        root: Folder for copies.
        chat_template: Name of a replacement, or a file; None for the folder's own.

    Raises:
        StageConfigError: the folder does not exist, or a file is not JSON.
    """
    check_folder(folder)
    given = {path.name: path.read_bytes() for path in processor_files(folder)}
    marked = [name for name, data in given.items() if data.startswith(codecs.BOM_UTF8)]
    files = {name: data.removeprefix(codecs.BOM_UTF8) for name, data in given.items()}
    if marked:
        log.warning("%s: a byte order mark was removed from %s", folder, ", ".join(marked))
    if chat_template is not None:  # replaces all others
        known: Mapping[str, str] = REPLACEMENTS
        text = known.get(chat_template) or read_text(Path(chat_template))
        files.pop(_LEGACY, None)
        for name in (_PROCESSOR, _TOKENIZER):
            values = read_folder_json(folder / name)
            if values.pop(_KEY, None) is not None:
                files[name] = dump_json(values).encode()
        files[_JINJA] = text.encode()
    return folder if files == given else write_folder(files, root)


# Checks of chat templates before they are used.
#
# A template that prints Python lists, loses a text or an image, or marks the wrong text as answer
# would train on nonsense without any error. If its prompt ends elsewhere than where answers
# start, evaluation is wrong. If its answers end in another token than generation does, generation
# never stops. So a few conversations are rendered at the start and checked. An error on one row
# refuses only that row.


_RULE, _QUESTION, _ANSWER = "testrule", "testquestion", "testanswer"
_DOUBT, _REPLY, _BEFORE, _BETWEEN = "testdoubt", "testreply", "testbefore", "testbetween"
_WORDS = (_RULE, _QUESTION, _ANSWER, _DOUBT, _REPLY, _BEFORE, _BETWEEN)
"""Words that occur in no template: a default system prompt may contain "question"."""
_IMAGE = {"type": "image"}


def _message(role: str, *items: dict[str, str] | str) -> dict[str, Any]:
    content = [{"type": "text", "text": i} if isinstance(i, str) else i for i in items]
    return {"role": role, "content": content}


_ASKED = [_message("user", _IMAGE, _QUESTION), _message("assistant", _ANSWER)]
_PROBES: tuple[tuple[list[dict[str, Any]], tuple[str, ...]], ...] = (
    (_ASKED, (_ANSWER,)),
    ([_message("system", _RULE), *_ASKED], (_ANSWER,)),
    ([*_ASKED, _message("user", _DOUBT), _message("assistant", _REPLY)], (_ANSWER, _REPLY)),
    (
        [
            _message("user", _BEFORE, _IMAGE, _BETWEEN, _IMAGE, _QUESTION),
            _message("assistant", _ANSWER),
        ],
        (_ANSWER,),
    ),
)
"""Test conversations, each with its answers; the first must be accepted."""
_LIST_MARK = re.compile(r"""['"]type['"]""")
"""In a rendered text: a content item printed by Python or JSON."""
_END_TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Files of a folder with its `eos_token`; the second, which older folders have, comes first."""


def check_template(chat: ChatTokenizer, place: Path) -> None:
    """Test the template on a question, with and without answer, then on less common conversations.

    It must accept the first. It may refuse the others (a system message, two turns, two images
    between texts), and then rows of that form.

    Raises:
        StageConfigError: it refuses the first, or would train on nonsense.
    """
    problem = None
    for messages, answers in _PROBES:
        problem = problem or _find_problem(chat, messages, answers, must_take=messages is _ASKED)
    problem = problem or _find_prompt_problem(chat)
    if problem:
        message = (
            f"{place}: the `chat_template` {problem}; {_instead(chat, _ASKED[:-1])}it must accept "
            "`content` as a list of items, also in the assistant's messages, print every item, "
            "mark only the assistant's answers, and with `add_generation_prompt` end where the "
            "answer starts"
        )
        raise StageConfigError(message)
    for messages, _ in _PROBES:
        _check_end_of_turn(chat, messages, place)


def find_printed_tokens(chat: ChatTokenizer) -> frozenset[int]:
    """Return the tokens that the template prints around answers in conversations it accepts."""
    printed: set[int] = set()
    for messages, _ in _PROBES:
        with suppress(TemplateRefusedError):
            tokens = chat.encode_conversation(messages)
            printed.update(tokens.input_ids[~tokens.supervised].tolist())
    return frozenset(printed)


def _find_problem(
    chat: ChatTokenizer, messages: ChatMessages, answers: Sequence[str], *, must_take: bool
) -> str | None:
    """Return what the template does wrong with these messages; None if nothing or refused."""
    roles = ", ".join(message["role"] for message in messages)
    try:
        tokens = chat.encode_conversation(messages)
    except TemplateRefusedError as error:
        return f"refuses a conversation of {roles} ({error})" if must_take else None
    num_items = sum(i["type"] == "image" for message in messages for i in message["content"])
    num_tokens = count_token(tokens.input_ids, chat.image_token_id)
    if num_tokens != num_items:
        return f"gives {num_tokens} image tokens for {num_items} of the items {{'type': 'image'}}"
    learned = [chat.tokenizer.decode(span) for span in _learned_spans(tokens)]
    if not _are_answers(learned, answers):
        return (
            f"gives {', '.join(map(repr, learned)) or 'nothing'} as the assistant's answers in a "
            f"conversation of {roles}, expected {', '.join(map(repr, answers))}"
        )
    printed = chat.tokenizer.decode(tokens.input_ids)
    if _LIST_MARK.search(printed):
        return f"prints a list without formatting it: {printed!r}"
    end = 0
    for message in messages:
        for text in (item["text"] for item in message["content"] if item["type"] == "text"):
            start = printed.find(text, end)
            if start < 0:
                return f"loses {text!r}, a text of the {message['role']}: it prints {printed!r}"
            end = start + len(text)
    return None


def _find_prompt_problem(chat: ChatTokenizer) -> str | None:
    """Return the problem if generation starts elsewhere than the answer does in training."""
    try:
        prompt = chat.encode_prompt(_ASKED[:-1]).input_ids
    except TemplateRefusedError as error:
        return f"refuses a question without its answer ({error})"
    tokens = chat.encode_conversation(_ASKED)
    before = tokens.input_ids[: int(np.argmax(tokens.supervised))]
    if np.array_equal(prompt, before):
        return None
    actual, expected = chat.tokenizer.decode(prompt), chat.tokenizer.decode(before)
    return (
        f"gives the prompt {actual!r} with `add_generation_prompt`, the answer follows {expected!r}"
    )


def _check_end_of_turn(chat: ChatTokenizer, messages: ChatMessages, place: Path) -> None:
    """Check that the learned text of a turn ends with the token at which generation stops.

    White space after it may be learned or not: generation does not reach it.

    Raises:
        StageConfigError: a model would never learn to stop, or would stop within its answer.
    """
    try:
        spans = _learned_spans(chat.encode_conversation(messages))
    except TemplateRefusedError:
        return
    for span in spans:
        ends = np.flatnonzero(span == chat.tokenizer.eos_token_id)
        after = chat.tokenizer.decode(span[ends[0] :]) if ends.size else ""
        if ends.size and not any(word in after for word in _WORDS):
            continue
        remedy = "set `eos_token` to the token that ends turns"
        if marks_answers(chat.tokenizer.chat_template):
            remedy = (
                "print the end-of-turn token once, before `{% endgeneration %}`, and set "
                "`eos_token` to it"
            )
        files = " and ".join(name for name in _END_TOKEN_FILES if (place.parent / name).exists())
        message = (
            f"{place}: with the `chat_template`, {chat.tokenizer.decode(span)!r} is the "
            "assistant's answer, which does not end with the tokenizer's `eos_token` "
            f"({chat.tokenizer.eos_token!r}), where generation stops; "
            f"{_instead(chat, messages[:1])}{remedy} in {files}"
        )
        raise StageConfigError(message)


def _instead(chat: ChatTokenizer, question: ChatMessages) -> str:
    """Name the replacement that renders this question like the template, if there is one."""
    tokens = chat.tokenizer.special_tokens_map
    for name, template in REPLACEMENTS.items():
        with suppress(TemplateRefusedError):
            rendered, _ = render(chat.tokenizer.chat_template, question, tokens)
            if rendered == render(template, question, tokens)[0]:
                return (
                    f"set `chat_template: {name}` in the config of this stage, which renders "
                    "questions the same way and ends answers as the model was trained; or change "
                    "the template: "
                )
    return ""


def closes_each_text(chat: ChatTokenizer) -> bool:
    """Check whether the template prints more around two texts of a message than around one."""
    once, twice = (_IMAGE, _BEFORE + _BETWEEN), (_BEFORE, _IMAGE, _BETWEEN)
    return any(
        _around(chat, role, once) != _around(chat, role, twice) for role in ("user", "assistant")
    )


def _around(chat: ChatTokenizer, role: str, items: Sequence[dict[str, str] | str]) -> str | None:
    """Return the printed text besides the words and white space; None if it is refused."""
    others = {"user": _QUESTION, "assistant": _ANSWER}
    messages = [_message(r, *(items if r == role else (text,))) for r, text in others.items()]
    try:
        printed = chat.tokenizer.decode(chat.encode_conversation(messages).input_ids)
    except TemplateRefusedError:
        return None
    for word in (_BEFORE, _BETWEEN):
        printed = printed.replace(word, "", 1)
    return "".join(printed.split())


def _learned_spans(tokens: TokenSequence) -> list[np.ndarray]:
    """Return the runs of supervised tokens."""
    edges = np.flatnonzero(np.diff(tokens.supervised, prepend=False, append=False))
    return [tokens.input_ids[start:end] for start, end in edges.reshape(-1, 2)]


def _are_answers(learned: Sequence[str], answers: Sequence[str]) -> bool:
    """Check whether each span is an answer and its end of turn, as the template defines it.

    A template may leave earlier answers out, but not the last.
    """
    texts = [text.strip() for text in learned]
    expected = answers[-len(texts) :]
    if not texts or len(texts) != len(expected):
        return False
    pairs = list(zip(texts, expected, strict=True))
    ending = texts[0].removeprefix(expected[0])
    is_same = all(text == answer + ending for text, answer in pairs)
    return is_same and not any(word in ending for word in _WORDS)
