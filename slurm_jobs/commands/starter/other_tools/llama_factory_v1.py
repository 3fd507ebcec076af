"""Training files of LLaMA-Factory's version 1: what each key means. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.commands.starter.other_tools import hf_trainer
from slurm_jobs.commands.starter.other_tools.tool_table import (
    DataReference,
    Rule,
    Tool,
    means,
    without,
)

TABLE: Mapping[str, Rule] = {
    **hf_trainer.LAUNCHER,
    **means(
        {
            "model": "model",
            "trust_remote_code": "trust_remote_code",
            "attention": "flash_attn",
            "method": "peft_config.name",
            "lora_rank": "peft_config.r",
            "lora_alpha": "peft_config.lora_alpha",
            "lora_dropout": "peft_config.lora_dropout",
            "lora_targets": "peft_config.target_modules",
            "rank_stabilised": "peft_config.use_rslora",
            "quantization_bits": "quant_config.quantization_bit",
            "quantization_kind": "quant_config.quantization_type",
            "double_quantization": "quant_config.double_quantization",
            "data": "train_dataset",
            "held_out_data": "eval_dataset",
            "output_dir": "output_dir",
            "device_batch": "micro_batch_size",
            "global_batch": "global_batch_size",
            "max_tokens": "cutoff_len",
            "learning_rate": "learning_rate",
            "epochs": "num_train_epochs",
            "steps": "max_steps",
            "clip_norm": "max_grad_norm",
            "bf16": "bf16",
            "checkpointing": "enable_activation_checkpointing",
            "deepspeed": "dist_config.config_file",
            "optimizer": "optim_config.name",
            "beta2": "adam_beta2",
            "weight_decay": "optim_config.wd optim_config.weight_decay",
            "schedule": "lr_scheduler_config.name",
            "warmup_share": "lr_scheduler_config.warmup_ratio",
            "warmup_steps": "lr_scheduler_config.warmup_steps",
            "seed": "seed",
            "save_steps": "save_steps",
            "save_limit": "save_total_limit",
            "log_steps": "logging_steps",
        }
    ),
    **without(
        {
            "the model's config.json decides": "model_class",
            "the model's own chat template is used": "custom_chat_template",
            "the model is loaded by transformers, on every rank": "init_config init_config.name",
            "it is only a matter of speed": (
                "kernel_config kernel_config.name kernel_config.include_kernels "
                "kernel_config.chunk_size"
            ),
            "`fsdp2` shards over all GPUs": (
                "dist_config dist_config.name dist_config.dcp_path dist_config.ep_size "
                "dist_config.ep_dispatcher dp_size cp_size cp_mode mp_replicate_size "
                "mp_shard_size"
            ),
            "bitsandbytes is the only method": "quant_config quant_config.name",
            "the whole language model learns": "peft_config",
            "layers are named by patterns in `learn`": (
                "peft_config.freeze_trainable_layers peft_config.freeze_trainable_modules "
                "peft_config.freeze_extra_modules"
            ),
            "LoRA is the only kind of adapter here": "peft_config.use_dora",
            "parts besides adapters are named in `learn`": "peft_config.modules_to_save",
            "an adapter cannot be continued: merge it into the model first": (
                "peft_config.adapter_name_or_path"
            ),
            "the training exports a whole model at its end": (
                "peft_config.export_dir peft_config.export_size peft_config.infer_dtype "
                "peft_config.export_hub_model_id peft_config.export_legacy_format "
                "save_ckpt_as_hf"
            ),
            "AdamW is the only optimizer, with the betas of the spec": (
                "optim_config optim_config.momentum optim_config.nesterov optim_config.ns_steps "
                "optim_config.adamw_betas optim_config.adamw_eps optim_config.lr"
            ),
            "a schedule has no parameters here": "lr_scheduler_config",
            "`batching` decides how rows are filled": "batching_strategy batching_workers",
            "ranks wait at most `collective_timeout_min` for each other, 10 minutes": (
                "dist_timeout"
            ),
            "`deterministic: true` refuses other kernels": "full_determinism",
            "checkpoints are saved by time and steps: `checkpoint`": "save_epochs",
            "`slurm-jobs resume` continues from the newest checkpoint": "resume_from_checkpoint",
            "it is for generation: `evaluate` answers without sampling": (
                "sample_backend max_new_tokens"
            ),
            "it belongs to training by preferences, which does not exist here": (
                "pref_loss pref_beta pref_ftx simpo_gamma dpo_label_smoothing ld_alpha"
            ),
        }
    ),
}


def data_sets(values: Mapping[str, Any]) -> list[DataReference]:
    """Return the file or folder of `train_dataset`, which may be a list of data sets in YAML."""
    name = str(values.get("train_dataset") or "")
    return [DataReference(key="train_dataset", name=name, path=name)] if name else []


LLAMA_FACTORY_V1 = Tool(
    name="LLaMA-Factory v1",
    known_by=frozenset({"train_dataset"}),
    table=TABLE,
    data_sets=data_sets,
    defaults={
        "learning_rate": 1e-4,
        "num_train_epochs": 3,
        "micro_batch_size": 1,
        "cutoff_len": 2048,
        "enable_activation_checkpointing": True,
        "adam_beta2": 0.999,
        "peft_config.name": "full",
        "peft_config.r": 8,
        "peft_config.lora_alpha": 16,
        "peft_config.lora_dropout": 0.05,
        "peft_config.target_modules": "all",
        "lr_scheduler_config.name": "constant",
        "lr_scheduler_config.warmup_ratio": 0.0,
    },
)
