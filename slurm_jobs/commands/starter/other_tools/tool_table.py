"""Table of a tool: what each of its keys means, or why it has no counterpart here. PURE."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Meaning: TypeAlias = Literal[
    "accumulation",
    "attention",
    "beta1",
    "beta2",
    "bf16",
    "checkpointing",
    "clip_norm",
    "compile",
    "data",
    "data_columns",
    "data_folder",
    "deepspeed",
    "device_batch",
    "double_quantization",
    "dtype",
    "eight_bits",
    "epochs",
    "eval_steps",
    "four_bits",
    "fp16",
    "freeze_language",
    "freeze_projector",
    "freeze_vision",
    "freeze_vision_and_projector",
    "fsdp",
    "global_batch",
    "held_out_data",
    "held_out_share",
    "image_folder",
    "learning_rate",
    "learned_patterns",
    "log_steps",
    "lora_alpha",
    "lora_all_linear",
    "lora_dropout",
    "lora_rank",
    "lora_targets",
    "max_image_tokens",
    "max_pixels",
    "max_rows",
    "max_tokens",
    "method",
    "min_lr_share",
    "min_pixels",
    "mix_strategy",
    "mix_weights",
    "model",
    "no_checkpointing",
    "nodes",
    "offload",
    "optimizer",
    "output_dir",
    "packed_tokens",
    "packing",
    "processes",
    "quantization_bits",
    "quantization_kind",
    "rank_stabilised",
    "ranks",
    "reshard",
    "save_limit",
    "save_steps",
    "schedule",
    "seed",
    "steps",
    "system_prompt",
    "task",
    "template",
    "tf32",
    "too_long",
    "tracker_project",
    "tracker_run",
    "trackers",
    "trust_remote_code",
    "visible_gpus",
    "wandb_entity",
    "wandb_project",
    "warmup_share",
    "warmup_steps",
    "weight_decay",
]
"""Meanings that keys of several tools share, whatever their names."""


HF_DOWNLOAD = "hf download {name} --repo-type dataset --local-dir {folder}"
MODELSCOPE_DOWNLOAD = "modelscope download --dataset {name} --local_dir {folder}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Without:
    """Rule of a key that has no counterpart here."""

    reason: str


Rule: TypeAlias = Meaning | Without
_POSITION = re.compile(r"\.\d+(?=\.|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Key of a file with its value; a key within others has dots (`datasets.0.path`)."""

    key: str
    value: Any
    is_default: bool = False
    """True for what the tool does if the file is silent."""

    @property
    def table_key(self) -> str:
        """Return the key without positions in lists, as tables have it."""
        return _POSITION.sub("", self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataReference:
    """Data set as a file names it."""

    key: str
    """Key that names it, `datasets.0.path`."""
    name: str
    path: str
    """Path of a file or folder, or of a list followed by `::NAME`."""
    is_in_list: bool = False
    """True if a `dataset_info.json` in that folder describes it."""
    hub_name: str | None = None
    """`OWNER/NAME`, if it may be on a hub."""
    proportion: Mapping[str, Any] = field(default_factory=dict)
    """Its share of all samples, by a key of `Proportion`; without one, each row once."""
    download: str | None = None
    """Command that downloads it, if it is not the tool's."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by our keys, where the file gives them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """Another tool, and what its keys mean."""

    name: str
    known_by: frozenset[str]
    """Keys of which each file has one, and files of the other tools have none."""
    table: Mapping[str, Rule]
    data_sets: Callable[[Mapping[str, Any]], list[DataReference]]
    """Returns the data sets of all settings, by key."""
    defaults: Mapping[str, Any]
    """Its defaults that a translation depends on, by key."""
    defaults_of_full: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that differ if all weights learn."""
    script_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that apply only if the file is a script, which would set them."""
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Values, in small letters, with which a key means supervised fine-tuning."""
    download: str = HF_DOWNLOAD
    """Command that downloads a data set of the hub that its names mean."""
    is_on_modelscope: bool = False
    """True if names without a hub mean ModelScope."""
    default_batch: int | None = None
    """Samples of a step if the accumulation is not given."""


def without(reasons: Mapping[str, str]) -> dict[str, Without]:
    """Return a rule for each key; `reasons` has the keys, between blanks, by their reason."""
    rules: dict[str, Without] = {}
    for reason, keys in reasons.items():
        for key in keys.split():
            rules[key] = Without(reason=reason)
    return rules


def means(keys: Mapping[Meaning, str]) -> dict[str, Rule]:
    """Return a rule for each key; `keys` has the keys, between blanks, by their meaning."""
    rules: dict[str, Rule] = {}
    for meaning, names in keys.items():
        for key in names.split():
            rules[key] = meaning
    return rules
