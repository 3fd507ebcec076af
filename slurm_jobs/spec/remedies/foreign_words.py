"""Words of other tools for the settings of a stage, and the keys that do the same here. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnKey:
    """The key that does here what a key of another tool does."""

    path: str = ""
    """Below the stage's config; empty if there is no such key."""
    value: str = ""
    """Example value, in YAML."""
    beside: str = ""
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
"""


def _rows(stage: str, table: str) -> Iterator[tuple[str, OwnKey]]:
    for row in re.split(r"\n(?=\S)", table.strip()):
        text, _, note = " ".join(row.split()).partition(" # ")
        setting, _, words = text.partition("= ")
        key, _, beside = setting.strip().partition(" + ")
        path, _, value = key.partition(": ")
        yield words, OwnKey(path=path, value=value, beside=beside, note=note, stage=stage)


OWN_KEYS = (*_rows("train", _TRAIN), *_rows("preprocess", _PREPROCESS))
"""Words, separated by spaces, and the key that they mean."""
