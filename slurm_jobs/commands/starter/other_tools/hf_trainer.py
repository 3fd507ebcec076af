"""Keys of the Trainer of transformers, which LLaMA-Factory and ms-swift share. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.commands.starter.other_tools.tool_table import Rule, means, without

TABLE: Mapping[str, Rule] = {
    **means(
        {
            "output_dir": "output_dir",
            "learning_rate": "learning_rate",
            "weight_decay": "weight_decay",
            "beta1": "adam_beta1",
            "beta2": "adam_beta2",
            "clip_norm": "max_grad_norm",
            "optimizer": "optim",
            "schedule": "lr_scheduler_type",
            "warmup_share": "warmup_ratio",
            "warmup_steps": "warmup_steps",
            "epochs": "num_train_epochs",
            "steps": "max_steps",
            "device_batch": "per_device_train_batch_size",
            "accumulation": "gradient_accumulation_steps",
            "seed": "seed",
            "bf16": "bf16",
            "fp16": "fp16",
            "tf32": "tf32",
            "checkpointing": "gradient_checkpointing",
            "deepspeed": "deepspeed",
            "fsdp": "fsdp fsdp_config",
            "compile": "torch_compile",
            "log_steps": "logging_steps",
            "save_steps": "save_steps",
            "save_limit": "save_total_limit",
            "eval_steps": "eval_steps",
            "trackers": "report_to",
            "tracker_project": "project",
            "tracker_run": "run_name",
            "trust_remote_code": "trust_remote_code",
        }
    ),
    **without(
        {
            "each run writes to a folder of its own": (
                "overwrite_output_dir logging_dir add_version create_checkpoint_symlink"
            ),
            "`slurm-jobs resume` continues from the newest checkpoint": (
                "resume_from_checkpoint resume_only_model ignore_data_skip save_only_model "
                "restore_callback_states_from_checkpoint auto_find_batch_size"
            ),
            "checkpoints are saved by time and steps: `checkpoint`": (
                "save_strategy save_on_each_node save_first_step save_safetensors "
                "safe_serialization max_shard_size"
            ),
            "the report and `status` show the course of the loss": (
                "plot_loss include_num_input_tokens_seen include_tokens_per_second "
                "include_effective_tokens_per_second logging_first_step logging_strategy "
                "disable_tqdm log_level"
            ),
            "evaluation needs held-out rows: `evaluate.manifest`": (
                "do_eval do_predict eval_strategy evaluation_strategy eval_on_start eval_delay "
                "predict_with_generate per_device_eval_batch_size eval_accumulation_steps "
                "compute_accuracy load_best_model_at_end metric_for_best_model greater_is_better "
                "early_stopping_steps"
            ),
            "images are resized before the training, which only reads: `num_loader_threads`": (
                "dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory "
                "dataloader_persistent_workers"
            ),
            "all batches are full, because each step takes the next samples": (
                "dataloader_drop_last"
            ),
            "ranks wait at most `collective_timeout_min` for each other, 10 minutes": (
                "ddp_timeout"
            ),
            "`fsdp2` and `ddp` are set up without it": (
                "ddp_find_unused_parameters ddp_backend ddp_bucket_cap_mb ddp_broadcast_buffers "
                "local_rank gradient_checkpointing_kwargs accelerator_config low_cpu_mem_usage"
            ),
            "the data order depends on `seed` alone": "data_seed full_determinism",
            "it is only a matter of speed; `compile` and packing are what there is": (
                "use_liger_kernel enable_liger_kernel liger_kernel_config torch_compile_mode "
                "torch_compile_backend torch_empty_cache_steps"
            ),
            "`fsdp2` wraps the layers of both towers itself": "fsdp_transformer_layer_cls_to_wrap",
            "AdamW has the value 1e-8 here": "adam_epsilon",
            "a schedule has no parameters here": "lr_scheduler_kwargs",
            "AdamW is the only optimizer": "optim_args optim_target_modules",
            "there is no noise on embeddings or smoothing of labels here": (
                "neftune_noise_alpha label_smoothing_factor"
            ),
            "the columns of a manifest are read by their meaning": (
                "remove_unused_columns label_names"
            ),
            "nothing is uploaded: `model/` of the run's output is a folder of transformers": (
                "push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_revision"
            ),
            "every training starts with `slurm-jobs submit`": "do_train",
            "it is the precision of evaluation only": "bf16_full_eval fp16_full_eval",
            "the job's address is set from Slurm": "master_addr master_port node_rank machine_rank",
        }
    ),
}

DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_beta2": 0.999,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "num_train_epochs": 3,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}
"""Defaults that decide what is learned, and differ from the spec that `init` writes."""

LAUNCHER: Mapping[str, Rule] = {
    **means(
        {
            "nodes": "NNODES nnodes num_machines",
            "ranks": "NPROC_PER_NODE nproc_per_node num_gpus",
            "processes": "num_processes",
            "visible_gpus": "CUDA_VISIBLE_DEVICES ASCEND_RT_VISIBLE_DEVICES",
        }
    ),
    **without(
        {
            "the job's address is set from Slurm": (
                "MASTER_ADDR MASTER_PORT NODE_RANK RANK WORLD_SIZE rdzv_backend rdzv_endpoint "
                "rdzv_id hostfile num_nodes include exclude main_process_port main_process_ip "
                "main_process_port FORCE_TORCHRUN standalone"
            ),
            "`fsdp2` shards without a file of accelerate": "config_file",
            "set it in `environment` of the stage if your nodes need it": (
                "PYTORCH_CUDA_ALLOC_CONF OMP_NUM_THREADS HF_ENDPOINT HF_HOME "
                "MODELSCOPE_CACHE TOKENIZERS_PARALLELISM NCCL_DEBUG NCCL_SOCKET_IFNAME "
                "NCCL_IB_DISABLE TRITON_CACHE_DIR WANDB_MODE TORCH_NCCL_TIMEOUT"
            ),
            "keys of accounts come from your own environment, never from a spec": (
                "HF_TOKEN WANDB_API_KEY MODELSCOPE_API_TOKEN"
            ),
            "it is for another kind of device": (
                "PYTORCH_NPU_ALLOC_CONF TASK_QUEUE_ENABLE CPU_AFFINITY_CONF HCCL_CONNECT_TIMEOUT "
                "HCCL_SOCKET_IFNAME MULTI_STREAM_MEMORY_REUSE COMBINED_ENABLE "
                "HCCL_OP_BASE_FFTS_MODE_ENABLE USE_MCORE_GDN"
            ),
        }
    ),
    "WANDB_PROJECT": "wandb_project",
}
"""Variables and options with which a script starts a training on several GPUs."""
