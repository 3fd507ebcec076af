"""Check that a processor folder has the files of `preprocess`, of a kind that it understands.

The tokenizer is left to the job (`tokenizer.py`), and so are single values. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.processors.model_types import MODEL_CONFIG, image_processor_class
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import KeyPath

_TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    *("spiece.model", "sentencepiece.bpe.model", "tokenizer_config.json"),
)
"""Files from one or several of which transformers reads a tokenizer, depending on its kind."""

_IMAGES = "preprocessor_config.json"
_PROCESSOR = "processor_config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_KINDS: Mapping[KeyPath, str] = {
    ("config", "processor"): "a processor as Hugging Face saves one",
    ("config", "processor", "images"): "that of a SigLIP",
    ("config", "processor", "text"): "that of a language model",
}
"""Places where a `preprocess` names a folder, and the kind of it."""


def processor_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield processor folders of `preprocess` stages that lack a file, at its line.

    A folder that does not exist, or will be another stage's output, is not read.
    """
    for item in spec.expanded:
        kind, folder = _KINDS.get(item.path[2:]), item.resolved
        if kind is None or not spec.files.holds(folder):
            continue
        if _is_file(folder, spec.files):
            message = (
                f"{folder} is a file, and a folder is needed: {kind}; name its folder, "
                f"{PurePosixPath(folder).parent}"
            )
            yield spec.problem(item.path, message)
            continue
        config = spec.views[str(item.path[1])].config or {}
        missing = _missing(
            folder, str(item.path[-1]), spec.files, bool(config.get("chat_template"))
        )
        if missing:
            yield spec.problem(item.path, f"{folder} lacks {', '.join(missing)}; it must be {kind}")
        elif item.path[-1] == "processor" and _names_its_kind(folder, spec.files):
            problem = spec.files.processor_problem(folder)
            if problem is not None:
                yield spec.problem(item.path, problem)


def _is_file(path: str, files: Files) -> bool:
    try:
        if path.endswith((".json", ".model", ".txt", ".jinja")):
            files.read_text(path)
            return True
    except UnicodeDecodeError:
        return True
    except OSError:
        pass
    return False


def _names_its_kind(folder: str, files: Files) -> bool:
    """Check for an image processor with the name of its class."""
    images = files.json_values(f"{folder}/{_PROCESSOR}").get("image_processor")
    images = images or files.json_values(f"{folder}/{_IMAGES}")
    return isinstance(images, Mapping) and bool(image_processor_class(images))


def _missing(folder: str, key: str, files: Files, has_template: bool) -> list[str]:
    """Return what a folder lacks of a whole `processor`, or of its `images` or `text`."""

    def has(*names: str) -> bool:
        return any(files.holds(f"{folder}/{name}") for name in names)

    def says(name: str, word: str) -> bool:
        """Check for a word in a file; an unreadable one is not judged."""
        try:
            return word in files.read_text(f"{folder}/{name}")
        except FileNotFoundError:
            return False
        except (OSError, UnicodeDecodeError):
            return True

    missing = []
    lacks_tokenizer = key != "images" and not has(*_TOKENIZERS)
    if lacks_tokenizer:
        missing.append("a tokenizer (tokenizer.json)")
    # Since transformers 5 the processor's own file contains the image processor.
    if key != "text" and not has(_IMAGES) and not says(_PROCESSOR, '"image_processor"'):
        missing.append(f"the image size ({_IMAGES})")
    if key == "images" and not has(MODEL_CONFIG):
        missing.append(f"the size of patches ({MODEL_CONFIG})")
    if key != "processor":
        return missing
    # In the Qwen2-VL family an image's tokens depend on its size alone. Their folders on hubs have
    # no processor file.
    if not has(_PROCESSOR) and not says(_IMAGES, '"Qwen2VLImageProcessor'):
        missing.append(f"the number of tokens of an image ({_PROCESSOR})")
    # A processor of two folders has its own template.
    if not (lacks_tokenizer or has_template or has(*_TEMPLATES)) and not any(
        says(name, '"chat_template"') for name in ("tokenizer_config.json", _PROCESSOR)
    ):
        missing.append(f"a chat template ({_TEMPLATES[0]}, or `chat_template` of this stage)")
    return missing
