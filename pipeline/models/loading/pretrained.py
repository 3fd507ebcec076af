"""Models of transformers from a folder or from the hub, loaded strictly.

`from_pretrained` gives random values to weights that are missing in the files, keeps the
precision of the files, and may use the network. Here missing weights are an error, weights are
fp32 (the master copy of mixed precision), and a folder is never searched for elsewhere.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedConfig
from transformers.utils.logging import disable_progress_bar

from pipeline.models.data_facts import DataFacts
from pipeline.models.families import FAMILIES, check_image_kind, find_family
from pipeline.models.hub import DOWNLOAD_ERRORS, download_failure, failure_text
from pipeline.models.hugging_face import HuggingFaceVLM
from slurm_jobs.base.errors import StageConfigError, StageDataError, StageError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from slurm_jobs.formats.processors.folder import read_folder_json
from slurm_jobs.formats.processors.model_types import wrong_whole_model

log = logging.getLogger(__name__)

_MOST_NAMES = 5
"""Number of weights named in a message."""


def source_of(config: ModelConfig) -> str:
    """Return the folder, or the name on the hub."""
    source = config.path if config.path is not None else config.name
    assert source is not None  # guaranteed by ModelConfig
    return source


def read_hugging_face_config(config: ModelConfig) -> Any:
    """Read the model's own config, without its weights.

    Raises:
        StageConfigError: there is none, or it needs custom code.
        StageError: a download failed, and another attempt may succeed.
    """
    source = source_of(config)
    try:
        values, _ = PreTrainedConfig.get_config_dict(source, **_access(config))
        _refuse_kernels(source, values)
        wrong = wrong_whole_model(values)
        if wrong:
            message = f"model {source}: {wrong}"
            raise StageDataError(message)
        hf_config = AutoConfig.from_pretrained(source, **_access(config))
    except DOWNLOAD_ERRORS as error:
        raise _not_loaded(source, error, _remedy(config)) from error
    family = FAMILIES.get(hf_config.model_type)
    if family is not None and family.ties_by_text_config:
        _agree_on_tied_embeddings(hf_config, values)
    return hf_config


def _agree_on_tied_embeddings(hf_config: Any, values: Mapping[str, Any]) -> None:
    """Make a config and its text_config agree on whether the output head is the embeddings.

    Published files have `tie_word_embeddings` in text_config alone, as transformers 4 reads it.
    transformers 5 takes True from its class instead, and leaves it out when it saves a config.
    """
    text_config = hf_config.get_text_config()
    if "tie_word_embeddings" in values:
        text_config.tie_word_embeddings = hf_config.tie_word_embeddings
    else:
        hf_config.tie_word_embeddings = text_config.tie_word_embeddings


def _refuse_kernels(source: str, values: Mapping[str, Any]) -> None:
    """Refuse a config that names a repository of kernels, whose code transformers would run.

    Raises:
        StageConfigError: it names one.
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            _refuse_kernels(source, value)
        elif "attn_implementation" in key and "/" in str(value):
            message = (
                f"model {source}: config.json takes its attention from {value}, which is code of a "
                f"repository; remove `{key}` there, and set `model.attention`"
            )
            raise StageConfigError(message)


def find_folder(config: ModelConfig) -> Path:
    """Return the folder of a whole model; for a name on the hub, its cache.

    Raises:
        StageConfigError: the hub has no such model, or is unreachable.
        StageError: the download failed, and another attempt may succeed.
    """
    if config.path is not None:
        return Path(config.path)
    source = source_of(config)
    try:
        return Path(snapshot_download(source, allow_patterns=["*.json", "*.jinja"]))
    except DOWNLOAD_ERRORS as error:
        raise _not_loaded(source, error, _remedy(config)) from error


def read_config_values(folder: str, key: str) -> Mapping[str, Any]:
    """Read the config.json of a model's folder; `key` is the config key of the folder.

    Raises:
        StageConfigError: there is none.
    """
    values = read_folder_json(Path(folder) / "config.json")
    if not values:
        message = f"model {folder} cannot be loaded (no config.json there): {_folder_remedy(key)}"
        raise StageConfigError(message)
    _refuse_kernels(folder, values)
    return values


def load_hugging_face(
    config: ModelConfig,
    facts: DataFacts,
    *,
    dtype: torch.dtype | Literal["auto"] = torch.float32,
) -> HuggingFaceVLM:
    """Load the model with its weights on the CPU, in training mode.

    They have `dtype`; "auto" is that of the files.

    Raises:
        StageConfigError: it cannot be loaded completely, or takes other images.
    """
    source, hf_config = source_of(config), read_hugging_face_config(config)
    family = find_family(hf_config.model_type, source)
    check_image_kind(family, hf_config.model_type, facts.info)
    attention = _attention_of_parts(config.attention, hf_config)
    options = {"dtype": dtype, "attn_implementation": attention, **_access(config)}
    hf = load_whole(
        AutoModelForImageTextToText, source, remedy=_remedy(config), config=hf_config, **options
    )
    return HuggingFaceVLM(hf.train(), family, facts)


def load_part(model_class: Any, folder: str, key: str, config: PreTrainedConfig) -> Any:
    """Run `load_whole` for a folder; `key` is its config key."""
    options: dict[str, Any] = {
        "config": config,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    return load_whole(model_class, folder, remedy=_folder_remedy(key), **options)


def load_whole(
    model_class: Any,
    source: str,
    *,
    remedy: str | None,
    dtype: torch.dtype | Literal["auto"] = torch.float32,
    **options: Any,
) -> Any:
    """Load a transformers model with all of its weights on the CPU, in eval mode.

    Args:
        model_class: Class of transformers.
        source: Folder, or name on the hub.
        remedy: Advice if a folder cannot be loaded; None for a name on the hub.
        dtype: Dtype of the weights; "auto" is that of the files.
        options: Options of `from_pretrained`.

    Raises:
        StageConfigError: it cannot be loaded, or weights are missing, of other sizes, or not
            tied as the config says.
    """
    disable_progress_bar()  # one per rank, in the log
    try:
        model, info = model_class.from_pretrained(
            source, dtype=dtype, output_loading_info=True, **options
        )
    except pickle.UnpicklingError as error:
        message = (
            f"model {source} cannot be loaded: its weights are a pickle that holds more than "
            "tensors, and reading it could run any code: use a copy with safetensors"
        )
        raise StageConfigError(message) from error
    except (*DOWNLOAD_ERRORS, RuntimeError, SafetensorError) as error:
        raise _not_loaded(source, error, remedy) from error
    lacking = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    if lacking:
        message = (
            f"{source}: {len(lacking)} weights are missing, or differ in size from config.json "
            f"({_some(lacking)}); they would be random: copy the folder again"
        )
        raise StageDataError(message)
    # transformers unties weights if the files differ: one would be lost.
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    untied = {name: of for name, of in tied.items() if name not in model.all_tied_weights_keys}
    if untied:
        name, of = min(untied.items())
        message = (
            f"{source}: config.json ties {name} to {of} (tie_word_embeddings), but the files "
            "have both, with different values; set tie_word_embeddings to false in config.json, "
            "and in its text_config"
        )
        raise StageDataError(message)
    if info["unexpected_keys"]:
        names = _some(set(info["unexpected_keys"]))
        log.warning("%s: weights that are not part of the model are ignored: %s", source, names)
    return model


def make_random(config: ModelConfig, facts: DataFacts, device: torch.device) -> HuggingFaceVLM:
    """Build a model of the same sizes with random weights, or none on "meta"; in training mode.

    Raises:
        StageConfigError: there is no such model, or it takes other images.
    """
    hf_config = read_hugging_face_config(config)
    family = find_family(hf_config.model_type, source_of(config))
    check_image_kind(family, hf_config.model_type, facts.info)
    try:
        with device:
            hf = AutoModelForImageTextToText.from_config(
                hf_config,
                dtype=torch.float32,
                attn_implementation=_attention_of_parts(config.attention, hf_config),
                trust_remote_code=config.trust_remote_code,
            )
    except (ValueError, RuntimeError, ImportError) as error:
        raise _not_loaded(source_of(config), error, _remedy(config)) from error
    return HuggingFaceVLM(hf.train(), family, facts)


def _attention_of_parts(attention: str, hf_config: Any) -> str | dict[str, str]:
    """Return the attention for transformers: towers for sounds, which stay unused, are `eager`."""
    if getattr(hf_config, "audio_config", None) is None:
        return attention
    by_part = dict.fromkeys(("", "text_config", "vision_config"), attention)
    return by_part | {"audio_config": "eager"}


def _access(config: ModelConfig) -> dict[str, Any]:
    return {
        "local_files_only": config.path is not None,
        "trust_remote_code": config.trust_remote_code,
    }


def _some(names: set[str]) -> str:
    more = ", .." if len(names) > _MOST_NAMES else ""
    return ", ".join(sorted(names)[:_MOST_NAMES]) + more


def _remedy(config: ModelConfig) -> str | None:
    """Return advice for a folder; None for a name on the hub."""
    return None if config.path is None else _folder_remedy("model.path")


def _folder_remedy(key: str) -> str:
    return f"{key} must be the folder with config.json and the weights"


def _not_loaded(source: str, error: Exception, remedy: str | None) -> StageError:
    """Return the error to raise; one that a retry may not fix is a StageConfigError."""
    failure = download_failure(error) if remedy is None else None
    if failure is not None:
        message = f"model {failure_text(failure, source)}; or set model.path to a folder"
        return StageError(message) if failure.is_transient else StageConfigError(message)
    first = str(error).partition("\n")[0]
    advice = remedy or "model.name must be a model with config.json and weights on the hub"
    return StageConfigError(f"model {source} cannot be loaded ({first}): {advice}")
