"""Keys of other tools, or in the wrong place, and what they are called here. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.spec.model_keys import known_keys, places_of, type_at
from slurm_jobs.spec.yaml.document import KeyPath


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnKey:
    """The key that does here what a key of another tool does."""

    path: str = ""
    """Below the stage's config; empty if there is no such key."""
    value: str = ""
    """Example value, in YAML."""
    with_key: str = ""
    """In YAML, a key of the same mapping that the example needs."""
    note: str = ""
    """The difference."""
    stage: str = "train"
    """The built-in stage whose config has the key."""


# KEY: EXAMPLE [+ a key that the example needs] = WORDS of TRL, transformers, accelerate, PEFT,
# DeepSpeed, Lightning and similar tools [# NOTE]. `optimizer.type` is `type` in `optimizer` only.
_TRAIN = """
optimizer.learning_rate: 1e-4 = lr learning_rate base_lr max_lr peak_lr
optimizer.weight_decay: 0.01 = weight_decay wd
optimizer.kind: adamw = optim optimizer_type optimizer_name optimizer.type optimizer.name
    optimizer.optimizer
optimizer.beta1: 0.9 = adam_beta1
optimizer.beta2: 0.95 = adam_beta2
optimizer.grad_clip_norm: 1.0 = max_grad_norm gradient_clipping gradient_clip_val grad_clip
    clip_grad_norm
schedule.kind: cosine = lr_scheduler_type lr_scheduler scheduler lr_schedule schedule.type
    schedule.name
schedule.warmup_share: 0.05 = warmup_steps num_warmup_steps warmup_ratio warmup
    # a share of all steps
num_steps: 1000 = max_steps steps total_steps train_steps num_train_steps max_train_steps iterations
num_epochs: 3 = num_train_epochs epochs max_epochs
global_batch_size: 64 = per_device_train_batch_size per_gpu_train_batch_size train_batch_size
    batch_size micro_batch_size train_micro_batch_size_per_gpu
    # the samples of one step, over all ranks and microbatches
num_microbatches: 4 = gradient_accumulation_steps gradient_accumulation grad_accum
    accumulate_grad_batches
    # the pieces that each rank cuts its share of global_batch_size into; `auto` finds their number
precision: bf16 = bf16 # or leave it out: `auto` asks the GPU
precision: fp16 = fp16 # or leave it out: `auto` asks the GPU
precision: auto = mixed_precision dtype torch_dtype amp # or bf16, fp16, fp32
activation_checkpointing: true = gradient_checkpointing use_gradient_checkpointing
compile: {} = torch_compile use_torch_compile
strategy: fsdp2 = fsdp fsdp_config fsdp2 # `sharding` says how
strategy: fsdp2 = deepspeed deepspeed_config zero_stage
    # which shards parameters, gradients and optimizer, as ZeRO 3 does; no file of DeepSpeed is read
adapters: {rank: 16} = lora use_lora lora_config peft use_peft peft_config
adapters.rank: 16 = lora_r lora_rank r
adapters.alpha: 32 = lora_alpha
adapters.dropout: 0.05 = lora_dropout
adapters.targets: [language] = lora_target_modules target_modules lora_targets
quantize: {kind: nf4} = load_in_4bit use_4bit qlora quantization quantization_config load_in_8bit
    # 4 bits are all there is; it needs adapters (`adapters: {rank: 16}`)
learn: [projector] = freeze freeze_vision_tower freeze_vision freeze_backbone trainable_modules
    # all other parts are frozen
batching.kind: packed = packing sample_packing use_packing batching.type batching.name
batching.kind: grouped = group_by_length
log_every_steps: 50 = logging_steps log_steps log_interval log_every_n_steps
trackers.use: [tensorboard] = report_to log_with wandb tensorboard logger
trackers.project: captions = wandb_project project_name
checkpoint.every_steps: 500 = save_steps save_interval save_every save_strategy checkpointing_steps
checkpoint.keep_last: 2 = save_total_limit checkpoints_total_limit
evaluate.every_steps: 500 + manifest: data/heldout.jsonl = eval_steps eval_interval eval_strategy
    evaluation_strategy val_check_interval
evaluate.manifest: data/heldout.jsonl = eval_dataset eval_data_path eval_file val_file
    validation_file
evaluate.batch_size: 32 = per_device_eval_batch_size eval_batch_size
evaluate.max_new_tokens: 64 + manifest: data/heldout.jsonl = evaluate.max_length evaluate.max_tokens
    evaluate.max_seq_length
num_loader_threads: 4 = dataloader_num_workers num_workers # threads of each rank, not processes
num_prefetch_batches: 4 = dataloader_prefetch_factor prefetch_factor
collective_timeout_min: 10 = ddp_timeout # in minutes
seed: 0 = data_seed random_seed
model.path: models/Qwen2.5-VL-3B + type: hugging_face = model_name_or_path
    pretrained_model_name_or_path model_name base_model model_path
model.attention: sdpa = attn_implementation attn_impl use_flash_attention use_flash_attention_2
    flash_attn
    # which takes the GPU's fastest kernel
= output_dir logging_dir overwrite_output_dir
    # leave it out: output is stored in the run's folder
= resume_from_checkpoint auto_resume
    # leave it out: `slurm-jobs resume` continues from the newest checkpoint
"""
_PREPROCESS = """
max_tokens: 2048 = max_seq_length max_seq_len max_length model_max_length cutoff_len seq_length
manifest: data/train.jsonl = train_file train_data data_path dataset_path dataset_name
image_root: data/images = image_folder image_dir images_dir
image_pixels.max: 1003520 = image_max_pixels max_image_pixels max_pixels longest_edge
    image_longest_edge image_resolution image_size max_image_size image_max_size resize image_resize
    resized_height resized_width total_pixels max_image_tokens
    # the area (width times height) that larger images are reduced to; `max_pixels` of `preprocess`
    is another limit, which rejects image files with more pixels
image_pixels.min: 3136 = image_min_pixels min_image_pixels min_pixels shortest_edge
    # the area (width times height) that smaller images are enlarged to
held_out: {share: 0.02} = val_size val_ratio test_size validation_split split_dataset_ratio
    # a share of the pictures
"""


def _rows(stage: str, table: str) -> Iterator[tuple[str, OwnKey]]:
    for row in re.split(r"\n(?=\S)", table.strip()):
        text, _, note = " ".join(row.split()).partition(" # ")
        setting, _, words = text.partition("= ")
        key, _, with_key = setting.strip().partition(" + ")
        path, _, value = key.partition(": ")
        yield words, OwnKey(path=path, value=value, with_key=with_key, note=note, stage=stage)


OWN_KEYS = (*_rows("train", _TRAIN), *_rows("preprocess", _PREPROCESS))
"""Words, separated by spaces, and the key that they mean."""


_BY_WORD: Mapping[str, OwnKey] = {word: own for words, own in OWN_KEYS for word in words.split()}
_CONFIGS = {"TrainConfig": "train", "PreprocessConfig": "preprocess"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hint:
    """Name of an unknown key in slurm-jobs."""

    own: OwnKey
    place: KeyPath
    """Path of the key in the values; empty if it is in another stage, or does not exist."""
    example: str
    """In YAML, instead of the unknown key, or at `place` if that is not below."""
    is_near: bool
    """Whether the key is next to the unknown key or below it: the word is then unambiguous."""


def foreign_key(target: Any, values: Any, location: KeyPath) -> Hint | None:
    """Return what an unknown key is called here, if another tool has it.

    Args:
        target: the model that does not know it: a built-in stage's config, or a whole spec.
        values: everything that `target` was to describe.
        location: of the key.
    """
    word, *around = (str(step).lower().replace("-", "_") for step in location[:-3:-1])
    entry = _BY_WORD.get(".".join([*around, word])) or _BY_WORD.get(word)
    builtin = _CONFIGS.get(getattr(target, "__name__", ""), "")
    config: KeyPath = ()
    if not builtin and location[0] == "stages" and len(location) == 3:  # the config is below
        run = values["stages"][location[1]].get("run")
        builtin, config = (run if run in _CONFIGS.values() else ""), (*location[:2], "config")
    if entry is None or not builtin:
        return None
    path = tuple(entry.path.split("."))
    if entry.stage != builtin or not entry.path:
        hint = Hint(own=entry, place=(), example=_example(path, entry), is_near=True)
        return hint if builtin == "train" else None
    holder = location[:-1]
    # The nearest mapping outwards that knows the key: a phase has some keys of its own.
    around_it = (holder[:length] for length in range(len(holder), -1, -1))
    base = next((outer for outer in around_it if path[0] in known_keys(target, outer)), ())
    place: KeyPath = (*(config or base), *path)
    is_near = place[: len(holder)] == holder
    steps = (place[len(holder) :] if is_near else ()) or path
    return Hint(own=entry, place=place, example=_example(steps, entry), is_near=is_near)


def places_elsewhere(target: Any, location: KeyPath) -> list[KeyPath]:
    """Return where else a key of this name is: below the mapping that lacks it, or around that.

    Around it only a single place counts: a name in several places is ambiguous.
    """
    holder, key = location[:-1], str(location[-1])
    for length in range(len(holder), -1, -1):
        base = holder[:length]
        places: list[KeyPath] = [(*base, *below) for below in places_of(type_at(target, base), key)]
        if places:
            return places if base == holder or len(places) == 1 else []
    return []


def _example(steps: KeyPath, entry: OwnKey) -> str:
    """Return `optimizer: {learning_rate: 1e-4}`."""
    text = f"{steps[-1]}: {entry.value}"
    if entry.with_key and len(steps) > 1:
        text = f"{entry.with_key}, {text}"
    for step in reversed(steps[:-1]):
        text = f"{step}: {{{text}}}"
    return text
