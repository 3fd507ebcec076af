"""Chat templates: the one of a processor folder, and replacements for some that cannot train.

The precedence is that of `AutoProcessor` in transformers 5 (`processing_utils.py`,
`get_processor_dict`): a key of processor_config.json, `chat_template.json`,
`chat_template.jinja` with `additional_chat_templates/`, and last the tokenizer's own.

The replacements are for templates that print no end of turn after an answer, or print thoughts
before some answers only. They render questions like the published templates, and end each answer
with the token at which generation stops. They are a module because compute nodes have only this
package.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pipeline.preprocess.chat.end_token import END_TOKEN_FILES, with_end_token
from pipeline.preprocess.processor_folders import write_folder
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.base.files import dump_json
from slurm_jobs.formats.configs.stages import ChatTemplateName
from slurm_jobs.formats.processors.folder import check_folder, read_folder_json
from slurm_jobs.formats.processors.processor_files import processor_files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
_NO_THOUGHT = "<think>\\n\\n</think>\\n\\n"
"""What Qwen3.5 is given before an answer without a thought (`enable_thinking=False`)."""
_GLM_NO_THOUGHT = "<think></think>\\n"
_LEARNED = "{%- generation -%}{{- ' ' -}}" + _TEXTS + "{{- eos_token -}}{%- endgeneration -%}"


def _glm_template(before_answer: str) -> str:
    """Return a template in which the mark of the next question ends an answer."""
    header = "{{- '<|assistant|>\\n" + before_answer + "' -}}"
    return (
        "{{- '[gMASK]<sop>' -}}{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}" + header + "{%- generation -%}"
        "{%- for item in message['content'] -%}{{- item['text'] -}}{%- endfor -%}"
        "{{- '<|user|>' -}}{%- endgeneration -%}{%- else -%}"
        "{%- if message['role'] == 'system' -%}{{- '<|system|>' -}}"
        "{%- elif loop.first or loop.previtem['role'] != 'assistant' -%}{{- '<|user|>' -}}"
        "{%- endif -%}{{- '\\n' -}}"
        "{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}"
        "{{- '<|begin_of_image|><|image|><|end_of_image|>' -}}"
        "{%- else -%}{{- item['text'] -}}{%- endif -%}{%- endfor -%}"
        "{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}" + header + "{%- endif -%}"
    )


REPLACEMENTS: Mapping[ChatTemplateName, str] = {
    "glm-4v": _glm_template(""),
    "glm-4.6v": _glm_template(_GLM_NO_THOUGHT),
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
    "qwen3.5": (
        "{%- for message in messages -%}{{- '<|im_start|>' + message['role'] + '\\n' -}}"
        "{%- if message['role'] == 'assistant' -%}{{- '" + _NO_THOUGHT + "' -}}{%- generation -%}"
        "{%- for item in message['content'] -%}{{- item['text'] -}}{%- endfor -%}"
        "{{- '<|im_end|>' -}}{%- endgeneration -%}"
        "{%- else -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}"
        "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
        "{%- else -%}{{- item['text'] -}}{%- endif -%}{%- endfor -%}"
        "{{- '<|im_end|>' -}}{%- endif -%}{{- '\\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}"
        "{{- '<|im_start|>assistant\\n" + _NO_THOUGHT + "' -}}{%- endif -%}"
    ),
}
"""Templates by the name in the stage's `chat_template`. `llava-1.5` is also for LLaVA-NeXT with
Vicuna. `qwen3.5` gives each answer an empty thought, where the published template gives one only to
the answers after the last question, and `glm-4.6v` does the same."""
_END_TOKENS: Mapping[str, str] = {"glm-4v": "<|user|>", "glm-4.6v": "<|user|>"}
"""Tokens that end answers, by the name of the template, where a folder's `eos_token` is another."""
assert set(REPLACEMENTS) == set(get_args(ChatTemplateName))


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark and with Unix line ends.

    Raises:
        StageConfigError: it is a folder, or not UTF-8.
    """
    if path.is_dir():
        message = f"{path} is a folder; name the file of the template in it"
        raise StageDataError(message)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start})"
        raise StageDataError(message) from error


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
        raise StageDataError(message)
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
        raise StageDataError(message)
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
        known = cast("Mapping[str, str]", REPLACEMENTS)  # may be asked for any name
        text = known.get(chat_template) or read_text(Path(chat_template))
        files.pop(_LEGACY, None)
        for name in (_PROCESSOR, _TOKENIZER):
            values = read_folder_json(folder / name)
            if values.pop(_KEY, None) is not None:
                files[name] = dump_json(values).encode()
        files[_JINJA] = text.encode()
        for name in END_TOKEN_FILES if chat_template in _END_TOKENS else ():
            if name in files:
                files[name] = with_end_token(files[name], _END_TOKENS[chat_template])
    return folder if files == given else write_folder(files, root)
