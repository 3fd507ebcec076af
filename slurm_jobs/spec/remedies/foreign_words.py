"""Words of other tools for the settings of training, and the keys that do the same here. PURE."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnKey:
    """The key that does here what another tool's does."""

    path: str = ""
    """Below the stage's config; empty where there is no such key."""
    value: str = ""
    """An example, in YAML."""
    beside: str = ""
    """In YAML, a key of the same mapping without which the example makes no sense."""
    note: str = ""
    """What differs."""
    stage: str = "train"
    """The built-in stage whose config has it."""


OWN_KEYS: tuple[tuple[str, OwnKey], ...] = (
    (
        "lr learning_rate base_lr max_lr peak_lr",
        OwnKey(path="optimizer.learning_rate", value="1e-4"),
    ),
    ("weight_decay wd", OwnKey(path="optimizer.weight_decay", value="0.01")),
    (
        "optim optimizer_type optimizer_name optimizer.type optimizer.name optimizer.optimizer",
        OwnKey(path="optimizer.kind", value="adamw"),
    ),
    ("adam_beta1", OwnKey(path="optimizer.beta1", value="0.9")),
    ("adam_beta2", OwnKey(path="optimizer.beta2", value="0.95")),
    (
        "max_grad_norm gradient_clipping gradient_clip_val grad_clip clip_grad_norm",
        OwnKey(path="optimizer.grad_clip_norm", value="1.0"),
    ),
    (
        "lr_scheduler_type lr_scheduler scheduler lr_schedule schedule.type schedule.name",
        OwnKey(path="schedule.kind", value="cosine"),
    ),
    (
        "warmup_steps num_warmup_steps warmup_ratio warmup",
        OwnKey(path="schedule.warmup_share", value="0.05", note="a share of all steps"),
    ),
    (
        "max_steps steps total_steps train_steps num_train_steps max_train_steps iterations",
        OwnKey(path="num_steps", value="1000"),
    ),
    ("num_train_epochs epochs max_epochs", OwnKey(path="num_epochs", value="3")),
    (
        (
            "per_device_train_batch_size per_gpu_train_batch_size train_batch_size batch_size "
            "micro_batch_size train_micro_batch_size_per_gpu"
        ),
        OwnKey(
            path="global_batch_size",
            value="64",
            note="the samples of one step, over all ranks and microbatches",
        ),
    ),
    (
        "gradient_accumulation_steps gradient_accumulation grad_accum accumulate_grad_batches",
        OwnKey(
            path="num_microbatches",
            value="4",
            note="the pieces that each rank cuts its share of global_batch_size into; `auto` finds "
            "their number",
        ),
    ),
    (
        "bf16",
        OwnKey(path="precision", value="bf16", note="or leave it out: `auto` asks the GPU"),
    ),
    (
        "fp16",
        OwnKey(path="precision", value="fp16", note="or leave it out: `auto` asks the GPU"),
    ),
    (
        "mixed_precision dtype torch_dtype amp",
        OwnKey(path="precision", value="auto", note="or bf16, fp16, fp32"),
    ),
    (
        "gradient_checkpointing use_gradient_checkpointing",
        OwnKey(path="activation_checkpointing", value="true"),
    ),
    ("torch_compile use_torch_compile", OwnKey(path="compile", value="{}")),
    ("fsdp fsdp_config fsdp2", OwnKey(path="strategy", value="fsdp2", note="`sharding` says how")),
    (
        "deepspeed deepspeed_config zero_stage",
        OwnKey(
            path="strategy",
            value="fsdp2",
            note="which shards parameters, gradients and optimizer, as ZeRO 3 does; no file of "
            "DeepSpeed is read",
        ),
    ),
    (
        "lora use_lora lora_config peft use_peft peft_config",
        OwnKey(path="adapters", value="{rank: 16}"),
    ),
    ("lora_r lora_rank r", OwnKey(path="adapters.rank", value="16")),
    ("lora_alpha", OwnKey(path="adapters.alpha", value="32")),
    ("lora_dropout", OwnKey(path="adapters.dropout", value="0.05")),
    (
        "lora_target_modules target_modules lora_targets",
        OwnKey(path="adapters.targets", value="[language]"),
    ),
    (
        "load_in_4bit use_4bit qlora quantization quantization_config load_in_8bit",
        OwnKey(
            path="quantize",
            value="{kind: nf4}",
            note="4 bits are all there is; it needs adapters (`adapters: {rank: 16}`)",
        ),
    ),
    (
        "freeze freeze_vision_tower freeze_vision freeze_backbone trainable_modules",
        OwnKey(path="learn", value="[projector]", note="what is not named is frozen"),
    ),
    (
        "packing sample_packing use_packing batching.type batching.name",
        OwnKey(path="batching.kind", value="packed"),
    ),
    ("group_by_length", OwnKey(path="batching.kind", value="grouped")),
    (
        "logging_steps log_steps log_interval log_every_n_steps",
        OwnKey(path="log_every_steps", value="50"),
    ),
    (
        "report_to log_with wandb tensorboard logger",
        OwnKey(path="trackers.use", value="[tensorboard]"),
    ),
    ("wandb_project project_name", OwnKey(path="trackers.project", value="captions")),
    (
        "save_steps save_interval save_every save_strategy checkpointing_steps",
        OwnKey(path="checkpoint.every_steps", value="500"),
    ),
    ("save_total_limit checkpoints_total_limit", OwnKey(path="checkpoint.keep_last", value="2")),
    (
        "eval_steps eval_interval eval_strategy evaluation_strategy val_check_interval",
        OwnKey(path="evaluate.every_steps", value="500", beside="manifest: data/heldout.jsonl"),
    ),
    (
        "eval_dataset eval_data_path eval_file val_file validation_file",
        OwnKey(path="evaluate.manifest", value="data/heldout.jsonl"),
    ),
    (
        "per_device_eval_batch_size eval_batch_size",
        OwnKey(path="evaluate.batch_size", value="32"),
    ),
    (
        "evaluate.max_length evaluate.max_tokens evaluate.max_seq_length",
        OwnKey(
            path="evaluate.max_new_tokens",
            value="64",
            beside="manifest: data/heldout.jsonl",
        ),
    ),
    (
        "dataloader_num_workers num_workers",
        OwnKey(path="num_loader_threads", value="4", note="threads of each rank, not processes"),
    ),
    ("dataloader_prefetch_factor prefetch_factor", OwnKey(path="num_prefetch_batches", value="4")),
    ("ddp_timeout", OwnKey(path="collective_timeout_min", value="10", note="in minutes")),
    ("data_seed random_seed", OwnKey(path="seed", value="0")),
    (
        "model_name_or_path pretrained_model_name_or_path model_name base_model model_path",
        OwnKey(
            path="model.path",
            value="models/Qwen2.5-VL-3B",
            beside="type: hugging_face",
        ),
    ),
    (
        "attn_implementation attn_impl use_flash_attention use_flash_attention_2 flash_attn",
        OwnKey(path="model.attention", value="sdpa", note="which takes the GPU's fastest kernel"),
    ),
    (
        "max_seq_length max_seq_len max_length model_max_length cutoff_len seq_length",
        OwnKey(path="max_tokens", value="2048", stage="preprocess"),
    ),
    (
        "train_file train_data data_path dataset_path dataset_name",
        OwnKey(path="manifest", value="data/train.jsonl", stage="preprocess"),
    ),
    (
        "image_folder image_dir images_dir",
        OwnKey(path="image_root", value="data/images", stage="preprocess"),
    ),
    (
        (
            "image_max_pixels max_image_pixels max_pixels longest_edge "
            "image_longest_edge image_resolution image_size max_image_size image_max_size resize "
            "image_resize resized_height resized_width total_pixels max_image_tokens"
        ),
        OwnKey(
            path="image_pixels.max",
            value="1003520",
            note="the area (width times height) that larger images are reduced to; `max_pixels` of "
            "`preprocess` is another limit, which rejects image files with more pixels",
            stage="preprocess",
        ),
    ),
    (
        "image_min_pixels min_image_pixels min_pixels shortest_edge",
        OwnKey(
            path="image_pixels.min",
            value="3136",
            note="the area (width times height) that smaller images are enlarged to",
            stage="preprocess",
        ),
    ),
    (
        "output_dir logging_dir overwrite_output_dir",
        OwnKey(note="leave it out: what a stage makes lies in the folder of its run"),
    ),
    (
        "resume_from_checkpoint auto_resume",
        OwnKey(note="leave it out: `slurm-jobs resume` goes on from the newest checkpoint"),
    ),
)
"""Words of TRL, transformers, accelerate, PEFT, DeepSpeed, Lightning and their like.

`optimizer.type` is the word `type`, within `optimizer` alone.
"""
