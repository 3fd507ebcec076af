"""Check that a processor folder has the files of `preprocess`, without reading a model. PURE.

The content of the files is left to the job: `slurm_jobs/common/processors` and `tokenizer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import YamlDocument

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer_config.json"),
)
"""Files from one or several of which transformers reads a tokenizer, depending on its kind."""

_IMAGES = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"
_MODEL = "config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_WITH_TEMPLATE = ("tokenizer_config.json", _PROCESSOR)
"""Files that may have the chat template under a key."""
_FindMissing = Callable[[str, Callable[[str], bool], Callable[[str], str]], list[str]]
"""Function that returns missing files of a folder, from its path, existence checks and file texts.
"""


def processor_problems(
    marked: Sequence[MarkedString],
    document: YamlDocument,
    exists: Callable[[str], bool],
    read_text: Callable[[str], str],
) -> list[Problem]:
    """Return processor folders of `preprocess` stages that lack a file, at its line.

    A folder that does not exist, or will be another stage's output, is not read.
    """
    problems = []
    looks: dict[tuple[str | int, ...], tuple[_FindMissing, str]] = {
        ("config", "processor"): (_missing, "a processor as Hugging Face saves one"),
        ("config", "processor", "images"): (_missing_images, "that of a SigLIP"),
        ("config", "processor", "text"): (_missing_text, "that of a language model"),
    }
    for item in marked:
        look = looks.get(item.path[2:])
        if look is None or not exists(item.resolved):
            continue
        find_missing, kind = look
        if _is_file(item.resolved, read_text):
            message = (
                f"{path_text(item.path)}: {item.resolved} is a file, and a folder is needed: "
                f"{kind}; name its folder, {PurePosixPath(item.resolved).parent}"
            )
            problems.append(problem_at(document, item.path, message))
            continue
        missing = find_missing(item.resolved, exists, read_text)
        has_tokenizer = not _missing_text(item.resolved, exists, read_text)
        if (
            has_tokenizer
            and find_missing is _missing  # a processor of two folders has its own template
            and not document.value["stages"][item.path[1]]["config"].get("chat_template")
            and _lacks_template(item.resolved, exists, read_text)
        ):
            missing.append(f"a chat template ({_TEMPLATES[0]}, or `chat_template` of this stage)")
        if missing:
            message = (
                f"{path_text(item.path)}: {item.resolved} lacks {', '.join(missing)}; "
                f"it must be {kind}"
            )
            problems.append(problem_at(document, item.path, message))
    return problems


def _is_file(path: str, read_text: Callable[[str], str]) -> bool:
    if not path.endswith((".json", ".model", ".txt", ".jinja")):
        return False
    try:
        read_text(path)
    except UnicodeDecodeError:
        return True
    except OSError:
        return False
    return True


def _missing_images(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> list[str]:
    """Return missing files of the folder from which a composed processor has its images."""
    missing = []
    if not exists(f"{folder}/{_IMAGES}") and not _names_images(folder, read_text):
        missing.append(f"the image size ({_IMAGES})")
    if not exists(f"{folder}/{_MODEL}"):
        missing.append(f"the size of patches ({_MODEL})")
    return missing


def _missing_text(
    folder: str, exists: Callable[[str], bool], _read_text: Callable[[str], str]
) -> list[str]:
    """Return missing files of the folder from which a composed processor has its tokenizer."""
    if any(exists(f"{folder}/{name}") for name in _TOKENIZERS):
        return []
    return ["a tokenizer (tokenizer.json)"]


def _lacks_template(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> bool:
    """Check whether no file of a folder gives a chat template; an unreadable file is not judged."""
    if any(exists(f"{folder}/{name}") for name in _TEMPLATES):
        return False
    for name in _WITH_TEMPLATE:
        try:
            if '"chat_template"' in read_text(f"{folder}/{name}"):
                return False
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError):
            return False
    return True


def _missing(
    folder: str, exists: Callable[[str], bool], read_text: Callable[[str], str]
) -> list[str]:
    missing = _missing_text(folder, exists, read_text)
    if not exists(f"{folder}/{_IMAGES}") and not _names_images(folder, read_text):
        missing.append(f"the image size ({_IMAGES})")
    if not exists(f"{folder}/{_PROCESSOR}") and not _counts_by_size(folder, read_text):
        missing.append(f"the number of tokens of an image ({_PROCESSOR})")
    return missing


def _counts_by_size(folder: str, read_text: Callable[[str], str]) -> bool:
    """Check whether an image's tokens depend on its size alone, as in the Qwen2-VL family.

    Their folders on hubs have no processor file. Unreadable files are not judged.
    """
    try:
        return '"Qwen2VLImageProcessor' in read_text(f"{folder}/{_IMAGES}")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _names_images(folder: str, read_text: Callable[[str], str]) -> bool:
    """Check whether the processor's own file contains the image processor, as in transformers 5.

    Unreadable files are not judged.
    """
    try:
        return '"image_processor"' in read_text(f"{folder}/{_PROCESSOR}")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True
