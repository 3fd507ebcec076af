"""LLaMA-Factory's training files: what each key means. PURE."""

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

_NO_OTHER_OPTIMIZER = "AdamW is the only optimizer, and this one changes the updates"
_NO_OTHER_ADAPTER = "LoRA is the only kind of adapter here"
_NO_OTHER_STAGE = "it belongs to training by preferences, which does not exist here"
_NO_GENERATION = "it is for generation: `evaluate` answers without sampling"

TABLE: Mapping[str, Rule] = {
    **hf_trainer.TABLE,
    **hf_trainer.LAUNCHER,
    **means(
        {
            "model": "model_name_or_path",
            "task": "stage",
            "method": "finetuning_type",
            "data": "dataset",
            "data_folder": "dataset_dir",
            "image_folder": "media_dir",
            "held_out_data": "eval_dataset",
            "held_out_share": "val_size",
            "max_rows": "max_samples",
            "mix_strategy": "mix_strategy",
            "mix_weights": "interleave_probs",
            "template": "template",
            "system_prompt": "default_system",
            "max_tokens": "cutoff_len",
            "max_pixels": "image_max_pixels",
            "min_pixels": "image_min_pixels",
            "packing": "packing neat_packing",
            "lora_rank": "lora_rank",
            "lora_alpha": "lora_alpha",
            "lora_dropout": "lora_dropout",
            "lora_targets": "lora_target",
            "rank_stabilised": "use_rslora",
            "freeze_vision": "freeze_vision_tower",
            "freeze_projector": "freeze_multi_modal_projector",
            "freeze_language": "freeze_language_model",
            "quantization_bits": "quantization_bit",
            "quantization_kind": "quantization_type",
            "double_quantization": "double_quantization",
            "attention": "flash_attn",
            "no_checkpointing": "disable_gradient_checkpointing",
            "tracker_project": "swanlab_project trackio_project",
        }
    ),
    **without(
        {
            "the array of `preprocess` replaces it, and its results are never made twice": (
                "overwrite_cache preprocessing_num_workers preprocessing_batch_size "
                "tokenized_path data_shared_file_system"
            ),
            "samples are read by index, in an order that `seed` decides": (
                "streaming buffer_size disable_shuffling"
            ),
            "an evaluation gives the results of each manifest, too": "eval_on_each_dataset",
            "every answer of a conversation is learned, and only answers are": (
                "train_on_prompt mask_history ignore_pad_token_for_loss"
            ),
            "rows with tools are refused": "tool_format",
            "the chat template decides how a thinking model answers": (
                "enable_thinking preserve_thinking"
            ),
            "videos and audio are not read": (
                "video_max_pixels video_min_pixels video_fps video_maxlen use_audio_in_video "
                "audio_sampling_rate"
            ),
            "the processor in the model's folder decides how images are cut": (
                "image_do_pan_and_scan crop_to_patches"
            ),
            "the tokens of the model stay as they are": (
                "resize_vocab add_tokens add_special_tokens new_special_tokens_config "
                "init_special_tokens split_special_tokens use_fast_tokenizer"
            ),
            "the model is loaded as it is, by transformers": (
                "rope_scaling shift_attn mixture_of_depths train_from_scratch use_unsloth "
                "use_unsloth_gc use_reentrant_gc use_v1_kernels upcast_layernorm "
                "upcast_lmhead_output print_param_status device_map offload_folder infer_dtype "
                "moe_aux_loss_coef use_kv_cache model_revision cache_dir"
            ),
            "keys of accounts come from your own environment, never from a spec": (
                "hf_hub_token ms_hub_token om_hub_token swanlab_api_key swanlab_lark_webhook_url "
                "swanlab_lark_secret"
            ),
            "weights and optimizer state are in fp32, with `precision: auto` for the rest": (
                "pure_bf16 fp8 fp8_backend fp8_enable_fsdp_float8_all_gather"
            ),
            "bitsandbytes is the only method": "quantization_method quantization_device_map",
            "an adapter cannot be continued: merge it into the model first": (
                "adapter_name_or_path adapter_folder create_new_adapter"
            ),
            _NO_OTHER_ADAPTER: (
                "use_dora pissa_init pissa_iter pissa_convert loraplus_lr_ratio "
                "loraplus_lr_embedding oft_rank oft_block_size oft_target module_dropout"
            ),
            "parts besides adapters are named in `learn`": "additional_target",
            "layers are named by patterns in `learn`": (
                "freeze_trainable_layers freeze_trainable_modules freeze_extra_modules "
                "use_llama_pro"
            ),
            _NO_OTHER_OPTIMIZER: (
                "use_galore galore_target galore_rank galore_update_interval galore_scale "
                "galore_proj_type galore_layerwise use_apollo apollo_target apollo_rank "
                "apollo_update_interval apollo_scale apollo_proj apollo_proj_type "
                "apollo_scale_type apollo_layerwise apollo_scale_front use_badam badam_mode "
                "badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio "
                "badam_mask_mode badam_verbose use_adam_mini use_muon"
            ),
            "cross entropy is the only loss": (
                "use_dft_loss use_asft_loss asft_alpha use_eaft_loss eaft_alpha"
            ),
            _NO_OTHER_STAGE: (
                "pref_beta pref_ftx pref_bco_weight pref_loss dpo_label_smoothing "
                "kto_chosen_weight kto_rejected_weight simpo_gamma ppo_buffer_size ppo_epochs "
                "ppo_score_norm ppo_target ppo_whiten_rewards ref_model ref_model_adapters "
                "ref_model_quantization_bit reward_model reward_model_adapters "
                "reward_model_quantization_bit reward_model_type ld_alpha"
            ),
            _NO_GENERATION: (
                "do_sample temperature top_p top_k num_beams max_length max_new_tokens "
                "repetition_penalty length_penalty skip_special_tokens eval_num_beams "
                "generation_max_length infer_backend"
            ),
            "`trackers` names what reports go to": (
                "use_swanlab swanlab_workspace swanlab_run_name swanlab_mode swanlab_logdir "
                "trackio_space_id"
            ),
            "the training exports a whole model at its end": (
                "export_dir export_size export_device export_quantization_bit "
                "export_quantization_dataset export_quantization_nsamples "
                "export_quantization_maxlen export_legacy_format export_hub_model_id "
                "export_hf_on_finish"
            ),
            "`fsdp2` shards over all GPUs, and there is no tensor or pipeline parallelism": (
                "tensor_model_parallel_size pipeline_model_parallel_size "
                "expert_model_parallel_size context_parallel_size "
                "virtual_pipeline_model_parallel_size sequence_parallel "
                "use_distributed_optimizer overlap_param_gather overlap_grad_reduce "
                "recompute_granularity recompute_method recompute_num_layers "
                "use_hyper_parallel hyper_parallel_args hyper_parallel_cp_size "
                "moe_token_dispatcher_type use_mca use_megatron_bridge extra_config "
                "USE_MCA USE_MEGATRON_BRIDGE"
            ),
            "it is a kernel of Megatron": (
                "bias_activation_fusion apply_rope_fusion masked_softmax_fusion "
                "cross_entropy_loss_fusion moe_grouped_gemm use_packed_sequences "
                "calculate_per_token_loss mixed_precision megatron_pretrained_checkpoint"
            ),
            "experts are trained on GPUs, without KTransformers": (
                "use_kt kt_config kt_cpu_activation kt_weight_path kt_non_expert_weight_path "
                "kt_expert_checkpoint_path kt_use_lora_experts kt_lora_expert_num "
                "kt_lora_expert_intermediate_size"
            ),
            "Slurm places the ranks, not Ray": "ray_num_workers ray_init_kwargs",
            "`profile.steps` records a trace": (
                "enable_torch_profiler profiler_output_dir profiler_wait_steps "
                "profiler_warmup_steps profiler_active_steps profiler_repeat "
                "profiler_record_shapes profiler_profile_memory profiler_with_stack "
                "profile_modules"
            ),
        }
    ),
}


def data_sets(values: Mapping[str, Any]) -> list[DataReference]:
    """Return the data sets that `dataset` names, which a `dataset_info.json` describes."""
    folder = str(values.get("dataset_dir") or "data")
    named = values.get("dataset") or []
    names = named if isinstance(named, list) else str(named).split(",")
    return [
        DataReference(key="dataset", name=name, path=f"{folder}::{name}", is_in_list=True)
        for name in (str(name).strip() for name in names)
        if name
    ]


LLAMA_FACTORY = Tool(
    name="LLaMA-Factory",
    known_by=frozenset({"model_name_or_path"}),
    table=TABLE,
    data_sets=data_sets,
    allowed={"stage": frozenset({"sft"})},
    defaults={
        **hf_trainer.DEFAULTS,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_target": "all",
        "freeze_vision_tower": True,
        "freeze_multi_modal_projector": True,
        "cutoff_len": 2048,
        "image_max_pixels": 768 * 768,
        "gradient_checkpointing": True,
    },
)
