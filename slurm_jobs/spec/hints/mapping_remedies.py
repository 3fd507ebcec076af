"""Remedies for one value that was given instead of settings that hold keys. PURE."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.spec.model_keys import fields_of, is_model, refusal, type_at, with_keys
from slurm_jobs.spec.yaml.document import KeyPath
from slurm_jobs.spec.yaml.flow_style import flow_text
from slurm_jobs.spec.yaml.reader import read_yaml


@dataclass(frozen=True, slots=True)
class Form:
    """Small mapping that a model takes."""

    key: str = ""
    """Whose value it holds."""
    example: str = ""
    """Example of such a value, in YAML."""
    off: str | None = None
    """In YAML, what switches it off; empty if leaving it out does, None if nothing does."""
    others: tuple[str, str] = ("", "")
    """In YAML, what the mapping needs before and after that key."""

    def text(self, value: str) -> str:
        """Return the mapping in YAML."""
        before, after = self.others
        return f"{{{before}{self.key}: {value}{after}}}" if self.key else "{}"


FORMS: Mapping[str, Form] = {
    "AccelerateConfig": Form("config", "accelerate.yaml"),
    "AdaptersConfig": Form("rank", "16"),
    "Array": Form("num_slices", "8"),
    "AugmentConfig": Form("mirror_share", "0.5", off=""),
    "BatchingConfig": Form("kind", "packed"),
    "CheckpointConfig": Form("every_min", "30", off="{every_min: null}"),
    "Columns": Form("image", "photo", off=""),
    "CompileConfig": Form(),
    "EvaluateConfig": Form("manifest", "data/heldout.jsonl", off=""),
    "HeldOutConfig": Form("share", "0.02", off=""),
    "ImagePixels": Form("max", "1003520", off=""),
    "LanguageConfig": Form("path", "models/Qwen2.5-0.5B"),
    "LevelConfig": Form("name", "caption"),
    "ManifestEntry": Form("path", "data/captions.jsonl"),
    "ModelConfig": Form("path", "models/Qwen2.5-VL-3B", others=("type: hugging_face, ", "")),
    "OnResume": Form("raise_mem_gb", "2", off=""),
    "OptimizerConfig": Form("learning_rate", "1e-4"),
    "PhaseConfig": Form("name", "projector", others=("", ", num_steps: 1000")),
    "ProfileConfig": Form("steps", "[20, 40]", off=""),
    "QuantizeConfig": Form("kind", "nf4"),
    "Resources": Form("nodes", "1"),
    "SamplerConfig": Form("every_s", "1", off="{every_s: null}"),
    "ScalerConfig": Form("init_scale", "65536"),
    "ScheduleConfig": Form("kind", "cosine"),
    "ShardingConfig": Form("within", "node"),
    "StagingConfig": Form("mode", "before", off='{mode: "off"}'),
    "StreamConfig": Form("shuffle_buffer", "1000"),
    "TrackersConfig": Form("use", "[tensorboard]", off=""),
    "VisionConfig": Form("path", "models/siglip"),
}
"""By the name of the model, which need not be imported."""


def mapping_remedy(target: Any, location: KeyPath, value: Any) -> str:
    """Return `; ` and how to write `value`, where `target` takes keys, or a list of such."""
    hint = type_at(target, location)
    holder, is_list = with_keys(hint), False
    if typing.get_origin(holder) in {list, tuple}:
        holder, is_list = with_keys(typing.get_args(holder)[0]), True
    form = FORMS.get(getattr(holder, "__name__", "")) if is_model(holder) else None
    if form is None or not location:
        return ""
    label = "" if isinstance(location[-1], int) else f"{location[-1]}: "
    if value is False and not is_list:
        off = "" if type(None) in typing.get_args(hint) else form.off
        if off is not None:
            return f"; write `{label}{off}` for none" if off else "; for none leave it out"
    meant = "" if value is None else _with_value(holder, form, value)
    if meant:
        given = read_yaml(f"[{meant}]", "").value
        is_taken = refusal(target, location, given if is_list else given[0]) is None
        meant = meant if is_taken else ""
    shown = meant or form.text(form.example)
    word = "write" if meant or not form.key else "write for example"
    return f"; {word} `{label}{f'[{shown}]' if is_list else shown}`"


def _with_value(holder: Any, form: Form, value: Any) -> str:
    """Return the mapping with `value`, if that is a word or value that one of its keys takes."""
    if isinstance(value, str):
        for key, hint in fields_of(holder).items():
            if value in _words(hint):
                is_list = typing.get_origin(with_keys(hint)) in {list, tuple}
                return flow_text({key: [value] if is_list else value})
    is_taken = form.key and refusal(holder, (form.key,), value) is None
    return form.text(flow_text(value)) if is_taken else ""


def _words(hint: Any) -> frozenset[Any]:
    """Return the words that a type takes, alone or in a list."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return frozenset(arguments)
    return frozenset(word for each in arguments for word in _words(each))
