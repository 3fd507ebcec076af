"""How to write settings that hold keys, where one value was given in their place. PURE."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slurm_jobs.spec.model_keys import fields_of, is_model, refusal, type_at, with_keys
from slurm_jobs.spec.remedies.flow_text import flow_text
from slurm_jobs.spec.yaml_values import Path, read_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A small mapping that a model takes."""

    text: str
    """In YAML; VALUE stands for one value."""
    key: str = ""
    """Whose value that is."""
    example: str = ""
    """In YAML, of such a value."""
    off: str | None = None
    """In YAML, what switches it off; empty where leaving it out does, None where nothing does."""


FORMS: Mapping[str, Form] = {
    "AccelerateConfig": Form(text="{config: VALUE}", key="config", example="accelerate.yaml"),
    "AdaptersConfig": Form(text="{rank: VALUE}", key="rank", example="16"),
    "Array": Form(text="{num_slices: VALUE}", key="num_slices", example="8"),
    "AugmentConfig": Form(text="{mirror_share: VALUE}", key="mirror_share", example="0.5", off=""),
    "BatchingConfig": Form(text="{kind: VALUE}", key="kind", example="packed"),
    "CheckpointConfig": Form(
        text="{every_min: VALUE}", key="every_min", example="30", off="{every_min: null}"
    ),
    "Columns": Form(text="{image: VALUE}", key="image", example="photo", off=""),
    "CompileConfig": Form(text="{}"),
    "EvaluateConfig": Form(
        text="{manifest: VALUE}", key="manifest", example="data/heldout.jsonl", off=""
    ),
    "ImagePixels": Form(text="{max: VALUE}", key="max", example="1003520", off=""),
    "LanguageConfig": Form(text="{path: VALUE}", key="path", example="models/Qwen2.5-0.5B"),
    "LevelConfig": Form(text="{name: VALUE}", key="name", example="caption"),
    "ModelConfig": Form(
        text="{type: hugging_face, path: VALUE}", key="path", example="models/Qwen2.5-VL-3B"
    ),
    "OnResume": Form(text="{raise_mem_gb: VALUE}", key="raise_mem_gb", example="2", off=""),
    "OptimizerConfig": Form(text="{learning_rate: VALUE}", key="learning_rate", example="1e-4"),
    "PhaseConfig": Form(text="{name: VALUE, num_steps: 1000}", key="name", example="projector"),
    "ProfileConfig": Form(text="{steps: VALUE}", key="steps", example="[20, 40]", off=""),
    "QuantizeConfig": Form(text="{kind: VALUE}", key="kind", example="nf4"),
    "Resources": Form(text="{nodes: VALUE}", key="nodes", example="1"),
    "SamplerConfig": Form(
        text="{every_s: VALUE}", key="every_s", example="1", off="{every_s: null}"
    ),
    "ScalerConfig": Form(text="{init_scale: VALUE}", key="init_scale", example="65536"),
    "ScheduleConfig": Form(text="{kind: VALUE}", key="kind", example="cosine"),
    "ShardingConfig": Form(text="{within: VALUE}", key="within", example="node"),
    "StagingConfig": Form(text="{mode: VALUE}", key="mode", example="before", off='{mode: "off"}'),
    "StreamConfig": Form(text="{shuffle_buffer: VALUE}", key="shuffle_buffer", example="1000"),
    "TrackersConfig": Form(text="{use: VALUE}", key="use", example="[tensorboard]", off=""),
    "VisionConfig": Form(text="{path: VALUE}", key="path", example="models/siglip"),
}
"""By the name of the model, which need not be imported for it."""


def mapping_remedy(target: Any, location: Path, value: Any) -> str:
    """`; ` and how to write `value`, where `target` takes keys, or a list of such; or nothing."""
    hint = type_at(target, location)
    holder, is_list = _holder(hint)
    form = FORMS.get(getattr(holder, "__name__", ""))
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
    shown = meant or form.text.replace("VALUE", form.example)
    word = "write" if meant or not form.key else "write for example"
    return f"; {word} `{label}{f'[{shown}]' if is_list else shown}`"


def _holder(hint: Any) -> tuple[Any, bool]:
    """The model that a type is, or is a list of."""
    bare = with_keys(hint)
    if typing.get_origin(bare) in {list, tuple}:
        item = with_keys(typing.get_args(bare)[0])
        return (item, True) if is_model(item) else (None, True)
    return (bare, False) if is_model(bare) else (None, False)


def _with_value(holder: Any, form: Form, value: Any) -> str:
    """The mapping with what was given, where that is a word or value that one of its keys takes."""
    if isinstance(value, str):
        for key, hint in fields_of(holder).items():
            if value in _words(hint):
                is_list = typing.get_origin(with_keys(hint)) in {list, tuple}
                return flow_text({key: [value] if is_list else value})
    is_taken = form.key and refusal(holder, (form.key,), value) is None
    return form.text.replace("VALUE", flow_text(value)) if is_taken else ""


def _words(hint: Any) -> frozenset[Any]:
    """The words that a type takes, alone or in a list."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return frozenset(arguments)
    return frozenset(word for each in arguments for word in _words(each))
