"""ms-swift's options (`swift sft`): what each of them means. PURE."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from slurm_jobs.commands.starter.other_tools import hf_trainer
from slurm_jobs.commands.starter.other_tools.tool_table import (
    HF_DOWNLOAD,
    MODELSCOPE_DOWNLOAD,
    DataReference,
    Rule,
    Tool,
    means,
    without,
)

_NAME = re.compile(r"(?:(?P<hub>HF|MS)::)?(?P<path>[^#]+?)(?::[\w./-]+)?(?:#(?P<rows>\d+))?")
_DOWNLOADS = {"HF": HF_DOWNLOAD, "MS": MODELSCOPE_DOWNLOAD}

_COLUMNS = {
    "messages": "messages",
    "query": "prompt",
    "response": "text",
    "system": "system",
    "images": "image",
    "image": "image",
}
"""ms-swift's own names of columns, and the keys of ours."""

TABLE: Mapping[str, Rule] = {
    **hf_trainer.TABLE,
    **hf_trainer.LAUNCHER,
    **means(
        {
            "model": "model",
            "task": "task_type",
            "method": "tuner_type train_type sft_type",
            "data": "dataset",
            "data_columns": "columns",
            "held_out_data": "val_dataset",
            "held_out_share": "split_dataset_ratio",
            "mix_weights": "interleave_prob",
            "template": "template",
            "system_prompt": "system",
            "max_tokens": "max_length",
            "too_long": "truncation_strategy",
            "max_pixels": "max_pixels MAX_PIXELS",
            "min_pixels": "MIN_PIXELS",
            "max_image_tokens": "IMAGE_MAX_TOKEN_NUM",
            "packing": "packing",
            "packed_tokens": "packing_length",
            "lora_rank": "lora_rank",
            "lora_alpha": "lora_alpha",
            "lora_dropout": "lora_dropout",
            "lora_targets": "target_modules target_regex",
            "rank_stabilised": "use_rslora",
            "freeze_vision": "freeze_vit",
            "freeze_projector": "freeze_aligner",
            "freeze_language": "freeze_llm",
            "quantization_bits": "quant_bits",
            "quantization_kind": "bnb_4bit_quant_type",
            "double_quantization": "bnb_4bit_use_double_quant",
            "dtype": "torch_dtype",
            "attention": "attn_impl",
            "epochs": "max_epochs",
            "tracker_project": "swanlab_project",
            "tracker_run": "swanlab_exp_name",
        }
    ),
    **without(
        {
            "the array of `preprocess` replaces it, and its results are never made twice": (
                "dataset_num_proc load_from_cache_file download_mode lazy_tokenize "
                "packing_num_proc to_cached_dataset"
            ),
            "its samples are already tokens, in a format of ms-swift: name the rows by --data": (
                "cached_dataset cached_val_dataset"
            ),
            "samples are read by index, in an order that `seed` decides": (
                "streaming shuffle_buffer_size dataset_shuffle val_dataset_shuffle "
                "train_dataloader_shuffle"
            ),
            "weighted data sets have as many samples as all of them": "stopping_strategy",
            "`columns` names what names of columns do not show": (
                "disable_auto_column_mapping custom_dataset_info custom_register_path "
                "external_plugins"
            ),
            "rows that cannot be used are listed, and the run stops above `max_reject_share`": (
                "strict"
            ),
            "it belongs to the data set `self-cognition`": "model_name model_author",
            "the model's config.json decides": "model_type model_revision init_strategy",
            "the model comes from the Hugging Face hub, or from a folder": (
                "use_hf USE_HF local_repo_path check_model"
            ),
            "every answer of a conversation is learned with the same weight": (
                "loss_scale is_binary_loss_scale loss_type enable_dft_loss enable_channel_loss"
            ),
            "the chat template decides how a thinking model answers": (
                "enable_thinking preserve_thinking add_non_thinking_prefix "
                "disable_ignore_empty_think response_prefix use_chat_template template_backend"
            ),
            "rows with tools are refused": "agent_template",
            "boxes stay as the text has them": "norm_bbox",
            "videos and audio are not read": (
                "VIDEO_MAX_PIXELS VIDEO_MIN_PIXELS VIDEO_MAX_TOKEN_NUM VIDEO_MIN_TOKEN_NUM "
                "VIDEO_TOTAL_PIXELS FPS FPS_MAX_FRAMES FPS_MIN_FRAMES NFRAMES "
                "ENABLE_AUDIO_OUTPUT USE_AUDIO_IN_VIDEO SPEAKER_NAME"
            ),
            "the processor in the model's folder decides how images are cut": (
                "INPUT_SIZE MAX_NUM IMAGE_FACTOR SPATIAL_MERGE_SIZE IMAGE_MIN_TOKEN_NUM"
            ),
            "rows have little padding in `grouped` batches, and almost none if packed": (
                "padding_free group_by_length padding_side packing_strategy"
            ),
            "there is one learning rate for all parts": "vit_lr aligner_lr",
            "both towers follow `activation_checkpointing`": "vit_gradient_checkpointing",
            "parts besides adapters are named in `learn`": (
                "modules_to_save trainable_parameters trainable_parameters_regex "
                "freeze_parameters freeze_parameters_regex freeze_parameters_ratio"
            ),
            "an adapter cannot be continued: merge it into the model first": (
                "adapters resume_from_adapter"
            ),
            "LoRA is the only kind of adapter here, on linear layers": (
                "use_dora lora_bias lora_dtype lorap_lr_ratio init_weights target_parameters "
                "lora_ga_batch_size lora_ga_iters lora_ga_max_length lora_ga_direction "
                "lora_ga_scale lora_ga_stable_gamma fourier_n_frequency fourier_scaling "
                "boft_block_size boft_block_num boft_n_butterfly_factor boft_dropout vera_rank "
                "vera_projection_prng_key vera_dropout vera_d_initial adapter_act adapter_length "
                "adalora_target_r adalora_init_r adalora_tinit adalora_tfinal adalora_deltaT "
                "adalora_beta1 adalora_beta2 adalora_orth_reg_weight llamapro_num_new_blocks "
                "llamapro_num_groups reft_layer_key reft_layers reft_rank reft_args "
                "reft_intervention_type tuner_backend use_swift_lora lisa_activated_layers "
                "lisa_step_interval"
            ),
            "AdamW is the only optimizer": (
                "optimizer use_galore galore_target_modules galore_rank galore_update_proj_gap "
                "galore_scale galore_proj_type galore_optim_per_parameter galore_with_embedding "
                "galore_quantization galore_proj_quant galore_proj_bits galore_proj_group_size "
                "galore_cos_threshold galore_gamma_proj galore_queue_size"
            ),
            "bitsandbytes is the only method": (
                "quant_method hqq_axis bnb_4bit_compute_dtype bnb_4bit_quant_storage"
            ),
            "experts and their routers stay as the model has them": (
                "experts_impl router_aux_loss_coef"
            ),
            "the tokens of the model stay as they are": "new_special_tokens rope_scaling",
            "it is a limit of generation": (
                "max_model_len max_new_tokens temperature top_k top_p repetition_penalty "
                "num_beams stop_words stream logprobs load_args load_data_args model_kwargs"
            ),
            "all GPUs divide the batch, and there is no other parallelism": (
                "sequence_parallel_size device_map max_memory zero_hpz_partition_size "
                "deepspeed_autotp_size use_logits_to_keep ds3_gather_for_generation "
                "CELOSS_PARALLEL_SIZE enable_npu_model_patch"
            ),
            "evaluation needs held-out rows: `evaluate.manifest`": (
                "eval_use_evalscope eval_dataset eval_dataset_args eval_limit "
                "eval_generation_config extra_eval_args eval_metric early_stop_interval "
                "acc_strategy"
            ),
            "answers are text; a classifier is a level with `head: classes`": (
                "num_labels problem_type"
            ),
            "`callbacks` of the Trainer have no place here": "callbacks metric",
            "put it into `trackers.options`": (
                "swanlab_token swanlab_workspace swanlab_mode swanlab_webhook_url swanlab_secret "
                "swanlab_notification_method swanlab_email_language swanlab_sender_email "
                "swanlab_receiver_email swanlab_smtp_server swanlab_smtp_port"
            ),
            "Slurm places the ranks, not Ray": (
                "use_ray device_groups device_groups.nproc_per_node "
                "device_groups.default.device device_groups.default.ranks "
                "device_groups.default.workers"
            ),
            "checkpoints are written to the shared file system": "use_flash_ckpt",
            "an unknown option is an error here": "ignore_args_error",
            "it belongs to rerankers, which do not exist here": "MAX_NEGATIVE_SAMPLES",
        }
    ),
}


def data_sets(values: Mapping[str, Any]) -> list[DataReference]:
    """Return the data sets of `--dataset`: `[HF::]PATH_OR_ID[:SUBSET][#ROWS]`."""
    named = values.get("dataset") or []
    references = []
    for name in named if isinstance(named, list) else [named]:
        match = _NAME.fullmatch(str(name))
        path = str(name) if match is None else match["path"]
        rows = int(match["rows"] or 0) if match is not None else 0
        references.append(
            DataReference(
                key="dataset",
                name=str(name),
                path=path,
                hub_name=path,
                proportion={"num_samples": rows} if rows else {},
                download=None if match is None else _DOWNLOADS.get(match["hub"]),
                columns=_columns(values.get("columns")),
            )
        )
    return references


def _columns(given: Any) -> Mapping[str, str]:
    """Return our names of the columns that `--columns '{"their name": "query"}'` maps."""
    if isinstance(given, str):
        with suppress(ValueError):
            given = json.loads(given)
    columns = {}
    for column, meaning in (given if isinstance(given, dict) else {}).items():
        if meaning in _COLUMNS:
            columns[_COLUMNS[meaning]] = str(column)
    return columns


MS_SWIFT = Tool(
    name="ms-swift",
    known_by=frozenset({"tuner_type", "train_type", "split_dataset_ratio"}),
    table=TABLE,
    data_sets=data_sets,
    allowed={"task_type": frozenset({"causal_lm"})},
    download=MODELSCOPE_DOWNLOAD,
    is_on_modelscope=True,
    default_batch=16,
    defaults={
        "tuner_type": "lora",
        "lora_rank": 8,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "target_modules": "all-linear",
        "freeze_vit": True,
        "freeze_aligner": True,
        "learning_rate": 1e-4,
        "weight_decay": 0.1,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.0,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 1,
        "gradient_checkpointing": True,
        "report_to": "tensorboard",
    },
    defaults_of_full={"learning_rate": 1e-5},
    script_defaults={"NPROC_PER_NODE": 1},
)
