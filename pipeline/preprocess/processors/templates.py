"""Chat templates: the one of a processor folder, and replacements for some that cannot train.

The precedence is that of `AutoProcessor` in transformers 5 (`processing_utils.py`,
`get_processor_dict`): a key of processor_config.json, `chat_template.json`,
`chat_template.jinja` with `additional_chat_templates/`, and last the tokenizer's own.

The replacements are for templates that print no end of turn after an answer. They render
questions like the published templates, and end each answer with the tokenizer's `eos_token`, as
the models were trained. They are a module because compute nodes have only this package.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pipeline.preprocess.processors.folder import write_folder
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import dump_json
from slurm_jobs.common.processors.files import processor_files
from slurm_jobs.common.processors.reading import check_folder, read_json
from slurm_jobs.common.stage_config.preprocess import ChatTemplateName

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
_SAYS_OWN = "set `chat_template` of the stage to a file with the one to use"

_IMAGES = (
    "{%- for item in message['content'] if item['type'] == 'image' -%}"
    "{{- '<image>\\n' -}}{%- endfor -%}"
)
_TEXTS = (
    "{%- for item in message['content'] if item['type'] == 'text' -%}"
    "{{- item['text'] -}}{%- if not loop.last -%}{{- ' ' -}}{%- endif -%}{%- endfor -%}"
)
_ANSWER = "{%- generation -%}{{- ' ' -}}" + _TEXTS + "{{- eos_token -}}{%- endgeneration -%}"

REPLACEMENTS: Mapping[ChatTemplateName, str] = {
    "llava-1.5": (
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}{{- 'ASSISTANT:' -}}" + _ANSWER + "{%- else -%}"
        "{%- if message['role'] != 'system' -%}{{- message['role'].upper() + ': ' -}}{%- endif -%}"
        + _IMAGES
        + _TEXTS
        + "{{- ' ' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}"
    ),
    "llava-next-mistral": (
        "{%- for message in messages -%}"
        "{%- if message['role'] == 'assistant' -%}"
        + _ANSWER
        + "{%- elif message['role'] == 'system' -%}"
        "{{- '<<SYS>>\\n' -}}" + _TEXTS + "{{- '\\n<</SYS>>\\n\\n' -}}"
        "{%- else -%}{{- '[INST] ' -}}" + _IMAGES + _TEXTS + "{{- ' [/INST]' -}}"
        "{%- endif -%}{%- endfor -%}"
    ),
}
"""Templates by the name in the stage's `chat_template`. `llava-1.5` is also for LLaVA-NeXT with
Vicuna."""
assert set(REPLACEMENTS) == set(get_args(ChatTemplateName))


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTemplate:
    """Chat template and its source."""

    text: str
    place: Path
    """File."""


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


def find_template(folder: Path, tokenizer: PreTrainedTokenizerBase) -> FoundTemplate:
    """Return the chat template that `AutoProcessor` takes from a processor folder.

    Raises:
        StageConfigError: there is none, or several named ones without `default`.
    """
    given = _given(folder, tokenizer)
    if not given:
        message = (
            f"{folder}: no `chat_template` (looked in {_PROCESSOR}, {_LEGACY}, {_JINJA} and "
            f"{_TOKENIZER}); add {_JINJA} with the one that the model was trained with, or "
            f"{_SAYS_OWN}"
        )
        raise StageConfigError(message)
    place, value = given[0]
    text = _the_default(value, place)
    others = [file.name for file, other in given[1:] if _differs(other, text, file)]
    if others:
        log.warning(
            "%s: the chat template of %s is used, as AutoProcessor does; %s differs from it",
            folder,
            place.name,
            " and ".join(others),
        )
    return FoundTemplate(text=text, place=place)


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
        (folder / _PROCESSOR, read_json(folder / _PROCESSOR).get(_KEY)),
        (legacy, read_json(legacy).get(_KEY)),
        (jinja, files),
        (folder / _TOKENIZER, read_json(folder / _TOKENIZER).get(_KEY)),
    ]
    given = [(place, value) for place, value in values if value]
    # A tokenizer that was changed after loading has a template that is in no file.
    template = tokenizer.chat_template
    return given or ([(folder / _TOKENIZER, template)] if template else [])


def _differs(value: Any, text: str, place: Path) -> bool:
    try:
        return _the_default(value, place) != text
    except StageConfigError:  # several without a default: none is usable
        return False


def _the_default(value: Any, place: Path) -> str:
    """Return the one template in a value: a text, a mapping by name, or a list of both.

    Raises:
        StageConfigError: it is none of these, or has no `default`.
    """
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
            f"AutoProcessor takes none: {_SAYS_OWN}"
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
    if chat_template is not None:
        files = _with_template(folder, files, _text_of(chat_template))
    return folder if files == given else write_folder(files, root)


def _text_of(chat_template: str) -> str:
    known: Mapping[str, str] = REPLACEMENTS
    return known[chat_template] if chat_template in known else read_text(Path(chat_template))


def _with_template(folder: Path, files: Mapping[str, bytes], template: str) -> dict[str, bytes]:
    """Return the files of a processor folder with this chat template and no other."""
    changed = {name: data for name, data in files.items() if name != _LEGACY}
    for name in (_PROCESSOR, _TOKENIZER):
        values = read_json(folder / name)
        if values.pop(_KEY, None) is not None:
            changed[name] = dump_json(values).encode()
    return {**changed, _JINJA: template.encode()}


def find_replacement(
    template: str, renders_alike: Callable[[str, str], bool]
) -> ChatTemplateName | None:
    """Return the replacement that renders questions like `template`, if there is one."""
    return next(
        (name for name, text in REPLACEMENTS.items() if renders_alike(template, text)), None
    )
