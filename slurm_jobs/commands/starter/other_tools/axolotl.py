"""axolotl's training files: what each key means. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_jobs.commands.starter.other_tools.tool_table import (
    DataReference,
    Rule,
    Tool,
    means,
    without,
)

_SHARDING = "`fsdp2` wraps the layers of both towers itself"
_FSDP_KEYS = (
    "version fsdp_version state_dict_type final_state_dict_type auto_wrap_policy "
    "transformer_layer_cls_to_wrap min_num_params cpu_ram_efficient_loading "
    "cpu_offload_pin_memory sync_module_states use_orig_params limit_all_gathers "
    "sharding_strategy mixed_precision_policy backward_prefetch"
)
_FILE_KINDS = frozenset({"json", "csv", "parquet", "arrow"})
"""Values of `path` with which `data_files` names the data."""
_ROWS = "the form of each row shows what it means, and `columns` names what its names do not show"

TABLE: Mapping[str, Rule] = {
    **means(
        {
            "model": "base_model",
            "task": "rl reward_model process_reward_model",
            "method": "adapter",
            "data": "datasets.path datasets.data_files pretraining_dataset.path",
            "data_columns": "datasets.field_messages",
            "held_out_data": "test_datasets.path",
            "held_out_share": "val_set_size",
            "template": "chat_template",
            "system_prompt": "default_system_message",
            "max_tokens": "sequence_len",
            "too_long": "excess_length_strategy",
            "packing": "sample_packing",
            "output_dir": "output_dir",
            "lora_rank": "lora_r",
            "lora_alpha": "lora_alpha",
            "lora_dropout": "lora_dropout",
            "lora_targets": "lora_target_modules",
            "lora_all_linear": "lora_target_linear",
            "rank_stabilised": "peft_use_rslora",
            "freeze_vision_and_projector": "freeze_mm_modules",
            "learned_patterns": "unfrozen_parameters",
            "four_bits": "load_in_4bit",
            "eight_bits": "load_in_8bit",
            "device_batch": "micro_batch_size",
            "accumulation": "gradient_accumulation_steps",
            "epochs": "num_epochs",
            "steps": "max_steps",
            "learning_rate": "learning_rate",
            "weight_decay": "weight_decay",
            "optimizer": "optimizer",
            "beta1": "adam_beta1",
            "beta2": "adam_beta2",
            "clip_norm": "max_grad_norm",
            "schedule": "lr_scheduler",
            "min_lr_share": "cosine_min_lr_ratio",
            "warmup_share": "warmup_ratio",
            "warmup_steps": "warmup_steps",
            "seed": "seed",
            "bf16": "bf16 bfloat16",
            "fp16": "fp16 float16",
            "dtype": "torch_dtype",
            "tf32": "tf32",
            "checkpointing": (
                "gradient_checkpointing fsdp_config.activation_checkpointing "
                "fsdp_config.fsdp_activation_checkpointing"
            ),
            "attention": (
                "attn_implementation flash_attention sdp_attention xformers_attention "
                "flex_attention eager_attention sage_attention"
            ),
            "deepspeed": "deepspeed",
            "fsdp": "fsdp fsdp_config",
            "offload": "fsdp_config.offload_params fsdp_config.fsdp_offload_params",
            "reshard": ("fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward"),
            "compile": "torch_compile",
            "trust_remote_code": "trust_remote_code",
            "save_steps": "save_steps",
            "save_limit": "save_total_limit",
            "log_steps": "logging_steps",
            "eval_steps": "eval_steps",
            "wandb_project": "wandb_project",
            "wandb_entity": "wandb_entity",
            "tracker_run": "wandb_name",
            "trackers": ("use_tensorboard use_mlflow use_comet use_swanlab use_trackio use_wandb"),
            "tracker_project": (
                "mlflow_experiment_name comet_project_name swanlab_project trackio_project_name"
            ),
        }
    ),
    **without(
        {
            "the model's config.json decides": (
                "model_type base_model_config cls_model_config tokenizer_type processor_type "
                "processor_kwargs tokenizer_config tokenizer_use_fast tokenizer_legacy "
                "tokenizer_save_jinja_files is_falcon_derived_model is_llama_derived_model "
                "is_mistral_derived_model is_qwen_derived_model revision_of_model "
                "model_quantization_config model_quantization_config_kwargs"
            ),
            "the tokenizer in the model's folder is used, by transformers": (
                "tokenizer_use_mistral_common"
            ),
            "the tokens of the model stay as they are": (
                "special_tokens tokens added_tokens_overrides resize_token_embeddings_to_32x "
                "fix_untrained_tokens mean_resizing_embeddings shrink_embeddings"
            ),
            "the chat template shows where a turn ends": "eot_tokens",
            "the model's own chat template is used, or a file that `chat_template` names": (
                "chat_template_jinja chat_template_kwargs"
            ),
            "`preprocess` makes the data set, and its results are never made twice": (
                "dataset_prepared_path skip_prepare_dataset push_dataset_to_hub "
                "dataset_processes dataset_num_proc dataset_keep_in_memory dataset_shard_num "
                "dataset_shard_idx num_dataset_shards_to_save is_preprocess preprocess_iterable"
            ),
            "equal rows are not searched": "dataset_exact_deduplication",
            "the columns of a manifest are read by their meaning": "remove_unused_columns",
            _ROWS: (
                "datasets.type datasets.message_property_mappings "
                "datasets.message_field_role datasets.message_field_content datasets.roles "
                "datasets.chat_template datasets.conversation datasets.field "
                "datasets.field_human datasets.field_model datasets.ds_type "
                "datasets.input_format datasets.drop_system_message datasets.chat_template_jinja"
            ),
            "all rows of the split `train` are used": (
                "datasets.split datasets.shards datasets.shards_idx datasets.preprocess_shards"
            ),
            "a folder with several configurations is one data set: name its files": (
                "datasets.name datasets.revision datasets.trust_remote_code"
            ),
            "every answer of a conversation is learned, and only answers are": (
                "train_on_inputs datasets.roles_to_train datasets.train_on_eos "
                "datasets.train_on_eot datasets.message_field_training "
                "datasets.message_field_training_detail datasets.field_thinking "
                "datasets.template_thinking_key datasets.split_thinking datasets.field_tools"
            ),
            "the order of samples depends on `seed` alone": (
                "shuffle_merged_datasets shuffle_before_merging_datasets curriculum_sampling "
                "streaming streaming_multipack_buffer_size"
            ),
            "packing fills rows to the last token: `batching`": (
                "eval_sample_packing pad_to_sequence_len pad_to_multiple_of "
                "sample_packing_eff_est sample_packing_group_size sample_packing_bin_size "
                "sample_packing_sequentially sample_packing_seq_len_multiplier "
                "max_packed_sequence_len multipack_real_batches batch_flattening "
                "sample_packing_mp_start_method total_num_tokens total_supervised_tokens"
            ),
            "short samples are used, too": "min_sample_len max_prompt_len eval_sequence_len",
            "`batching: {kind: grouped}` is what the spec has": "group_by_length",
            "an adapter cannot be continued: merge it into the model first": "lora_model_dir",
            "parts besides adapters are named in `learn`": (
                "lora_modules_to_save peft_trainable_token_indices peft_ensure_weight_tying"
            ),
            "LoRA is the only kind of adapter here, on linear layers": (
                "lora_target_parameters lora_fan_in_fan_out peft_use_dora loftq_config "
                "peft.loftq_config.loftq_bits peft_init_lora_weights peft_layer_replication "
                "lora_rank_pattern lora_alpha_pattern peft_layers_to_transform "
                "peft_layers_pattern lora_on_cpu relora relora_prune_ratio relora_cpu_offload "
                "relora_prune_method loraplus_lr_ratio loraplus_lr_embedding lisa_n_layers "
                "lisa_step_interval lisa_layers_attribute peft merge_lora merge_method"
            ),
            "bitsandbytes' nf4 is the only method": (
                "gptq gptq_groupsize gptq_model_v1 gptq_disable_exllama bnb_config_kwargs qat "
                "quantization fp8 fp8_enable_fsdp_float8_all_gather qlora_sharded_model_loading "
                "peft_autocast_adapter_dtype"
            ),
            "experts stay as the model has them": (
                "quantize_moe_experts experts_implementation use_sonicmoe use_scattermoe "
                "llama4_linearized_experts expert_parallel_size"
            ),
            "it is only a matter of speed; `compile` and packing are what there is": (
                "plugins cut_cross_entropy liger_rope liger_rms_norm liger_rms_norm_gated "
                "liger_glu_activation liger_layer_norm liger_fused_linear_cross_entropy "
                "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel use_kernels "
                "flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp flash_optimum "
                "fused_attn_kernel chunked_cross_entropy chunked_cross_entropy_num_chunks "
                "tiled_mlp tiled_mlp_num_shards tiled_mlp_use_original_mlp torch_compile_backend "
                "torch_compile_mode torch_compile_options flex_attn_compile_kwargs "
                "gemma4_hybrid_attn_impl large_head_attention flash_attn_d512 sdpa_varlen"
            ),
            "activations stay on the GPU, or are computed again": (
                "activation_offloading layer_offloading selective_checkpointing "
                "gradient_checkpointing_kwargs"
            ),
            _SHARDING: " ".join(
                ["ddp_find_unused_parameters fsdp_version fsdp_final_state_dict_type"]
                + [f"fsdp_config.{key} fsdp_config.fsdp_{key}" for key in _FSDP_KEYS.split()]
            ),
            "all GPUs divide the batch, and there is no other parallelism": (
                "dp_shard_size dp_replicate_size context_parallel_size tensor_parallel_size "
                "sequence_parallel_degree heads_k_stride ring_attn_func device_map max_memory "
                "gpu_memory_limit device world_size local_rank ddp low_cpu_mem_usage "
                "experimental_skip_move_to_device"
            ),
            "the global batch is what `micro_batch_size` and accumulation give": "batch_size",
            "ranks wait at most `collective_timeout_min` for each other, 10 minutes": (
                "ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers"
            ),
            "there are `cosine`, `onecycle` and `constant`, for all parameters alike": (
                "lr_scheduler_kwargs cosine_constant_lr_ratio lr_quadratic_warmup lr_div_factor "
                "lr_groups embedding_lr embedding_lr_scale jagged_restart_steps "
                "jagged_restart_warmup_steps jagged_restart_anneal_steps eta_min"
            ),
            "AdamW has the value 1e-8 here": "adam_epsilon adam_epsilon2 adam_eps adam_beta3",
            "AdamW is the only optimizer": "optim_args optim_target_modules torchdistx_path",
            "there is no noise on embeddings here": "neftune_noise_alpha",
            "checkpoints are saved by time and steps: `checkpoint`": (
                "saves_per_epoch save_strategy save_first_step save_safetensors save_only_model "
                "dynamic_checkpoint"
            ),
            "`slurm-jobs resume` continues from the newest checkpoint": (
                "resume_from_checkpoint auto_resume_from_checkpoints"
            ),
            "evaluation needs held-out rows: `evaluate.manifest`": (
                "evals_per_epoch eval_strategy evaluation_strategy eval_batch_size "
                "eval_table_size eval_max_new_tokens do_causal_lm_eval eval_causal_lm_metrics "
                "do_bench_eval bench_dataset metric_for_best_model greater_is_better "
                "early_stopping_patience load_best_model_at_end generate_samples "
                "num_generation_samples test_datasets.split test_datasets.type "
                "test_datasets.data_files test_datasets.field_messages"
            ),
            "a loss that is not finite stops the training": (
                "loss_watchdog_threshold loss_watchdog_patience"
            ),
            "images are resized before the training, which only reads: `num_loader_threads`": (
                "dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory"
            ),
            "all batches are full, because each step takes the next samples": (
                "dataloader_drop_last"
            ),
            "put it into `trackers.options`": (
                "wandb_watch wandb_log_model wandb_run_id wandb_mode mlflow_tracking_uri "
                "mlflow_run_name hf_mlflow_log_artifacts comet_workspace comet_mode "
                "swanlab_mode swanlab_experiment_name swanlab_description swanlab_workspace "
                "swanlab_log_model trackio_run_name trackio_space_id"
            ),
            "keys of accounts come from your own environment, never from a spec": (
                "hf_use_auth_token comet_api_key"
            ),
            "nothing is uploaded: `model/` of the run's output is a folder of transformers": (
                "hub_model_id hub_strategy hub_revision"
            ),
            "`profile.steps` records a trace": "profiler_steps profiler_steps_start",
            "a spec is always checked strictly": "strict debug",
            "the whole model learns without `adapters`": "full_finetune",
            "Slurm places the ranks, not Ray": "use_ray ray_num_workers ray_run_name",
            "the job cleans up its memory": "gc_steps torch_empty_cache_steps gc_collect_steps",
            "the report counts tokens": "include_tokens_per_second include_tkps",
        }
    ),
}


def data_sets(values: Mapping[str, Any]) -> list[DataReference]:
    """Return the data sets of `datasets`."""
    references: list[DataReference] = []
    number = 0
    while (path := values.get(f"datasets.{number}.path")) is not None:
        prefix = f"datasets.{number}"
        files = values.get(f"{prefix}.data_files")
        key = "data_files" if files else "path"
        files = files if isinstance(files, list) and files else [files or path]
        if path not in _FILE_KINDS:
            files = files[:1]  # a folder, or a name on a hub, which is one data set
        messages = values.get(f"{prefix}.field_messages")
        columns = {} if messages is None else {"messages": str(messages)}
        references.extend(
            DataReference(
                key=f"{prefix}.{key}",
                name=str(file),
                path=str(file),
                hub_name=str(path),
                columns=columns,
            )
            for file in files
        )
        number += 1
    return references


AXOLOTL = Tool(
    name="axolotl",
    known_by=frozenset({"base_model"}),
    table=TABLE,
    data_sets=data_sets,
    allowed={
        "rl": frozenset(),
        "reward_model": frozenset({"false"}),
        "process_reward_model": frozenset({"false"}),
        "pretraining_dataset.path": frozenset(),
    },
    defaults={
        "adapter": "full",
        "sequence_len": 512,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "weight_decay": 0.0,
        "adam_beta2": 0.999,
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.03,
        "gradient_checkpointing": False,
    },
)
