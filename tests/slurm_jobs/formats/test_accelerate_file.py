"""What files of accelerate ask for, and which of them are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_jobs.formats.accelerate_file import (
    KNOWN_FSDP_KEYS,
    KNOWN_KEYS,
    SpecValues,
    find_problems,
    precision_of,
    understand,
)

ASKER = SpecValues(num_ranks=8, num_nodes=2, device="cuda", precision="auto")
FSDP = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
WRITTEN = {
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "distributed_type": "FSDP",
    "downcast_bf16": "no",
    "enable_cpu_affinity": False,
    "fsdp_config": {
        **FSDP,
        "fsdp_activation_checkpointing": False,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer,SiglipEncoderLayer",
    },
    "machine_rank": 0,
    "main_training_function": "main",
    "mixed_precision": "bf16",
    "num_machines": 2,
    "num_processes": 8,
    "rdzv_backend": "static",
    "same_network": True,
    "tpu_env": [],
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "use_cpu": False,
}
"""As `accelerate config` of version 1.15 writes it."""


def fsdp(**keys):
    return {"distributed_type": "FSDP", "fsdp_config": {**FSDP, **keys}}


def mesh(**sizes):
    return {
        **fsdp(),
        "parallelism_config": {f"parallelism_config_{k}": v for k, v in sizes.items()},
    }


def test_what_accelerate_config_writes_is_understood():
    assert find_problems(WRITTEN, ASKER) == []
    file = understand(WRITTEN)
    assert (file.distributed_type, file.precision) == ("FSDP", "bf16")
    assert file.wraps_layers
    assert file.layer_classes == ("Qwen2DecoderLayer", "SiglipEncoderLayer")
    assert (file.offloads, file.num_replicas) == (False, 1)


def test_short_names_of_fsdp_keys_are_those_of_accelerate():
    values = {**fsdp(), "fsdp_config": {"version": 2, "offload_params": "true"}}
    assert find_problems(values, ASKER) == []
    assert understand(values).offloads
    assert not understand(values).wraps_layers


def test_a_mesh_of_replicas_is_understood():
    values = mesh(dp_replicate_size=2, dp_shard_size=4)
    assert find_problems(values, ASKER) == []
    assert understand(values).num_replicas == 2


@pytest.mark.parametrize(
    ("values", "precision"),
    [
        ({}, "fp32"),
        ({"mixed_precision": "no"}, "fp32"),
        ({"mixed_precision": "bf16"}, "bf16"),
        ({"fp16": True}, "fp16"),
        ({"mixed_precision": "fp8"}, None),
    ],
)
def test_the_precision_is_read_as_accelerate_reads_it(values, precision):
    assert precision_of(values) == precision


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "no keys and values"),
        ({"distributed_type": "DEEPSPEED"}, "distributed_type is DEEPSPEED, which slurm-jobs"),
        ({"distributed_type": "MEGATRON_LM"}, "distributed_type is MEGATRON_LM"),
        ({}, "distributed_type is None"),
        ({"distributed_type": False}, "without quotes as false: write 'NO'"),
        (
            {"distributed_type": "MULTI_GPU", "compute_environment": "AMAZON_SAGEMAKER"},
            "compute_environment is AMAZON_SAGEMAKER: write LOCAL_MACHINE",
        ),
        ({"distributed_type": "MULTI_GPU", "num_processes": 4}, "num_processes is 4, and the"),
        ({"distributed_type": "MULTI_GPU", "num_machines": 1}, "num_machines is 1, and the"),
        ({"distributed_type": "MULTI_GPU", "gpu_ids": "0,1"}, "gpu_ids is 0,1, and Slurm gives"),
        ({"distributed_type": "NO"}, "distributed_type is NO, and the stage has 8 ranks"),
        ({"distributed_type": "MULTI_CPU"}, "MULTI_CPU, and the stage's device is cuda"),
        ({**fsdp(), "use_cpu": True}, "use_cpu is true, and the stage's device is cuda"),
        ({"distributed_type": "MULTI_GPU", "mixed_precision": "fp8"}, "mixed_precision is fp8"),
        ({"distributed_type": "MULTI_GPU", "mixed_precision": False}, "as false: write 'no'"),
        (
            {"distributed_type": "MULTI_GPU", "dynamo_config": {"dynamo_backend": "INDUCTOR"}},
            "dynamo_backend is INDUCTOR: compiling the whole model renames its parameters",
        ),
        ({"distributed_type": "MULTI_GPU", "num_proceses": 8}, "did you mean `num_processes`?"),
        ({**fsdp(), "fsdp_config": {}}, "accelerate to-fsdp2 --config_file"),
        (fsdp(fsdp_version=1), "fsdp_version is 1, and only 2 runs here"),
        (fsdp(fsdp_ofload_params=True), "did you mean `fsdp_offload_params`?"),
        (fsdp(fsdp_auto_wrap_policy="SIZE_BASED_WRAP"), "shards no model that has a list of"),
        (fsdp(fsdp_sharding_strategy="HYBRID_SHARD"), "which version 2 does not read: say it by"),
        (fsdp(fsdp_forward_prefetch="true"), "sharding: {forward_prefetch: 1}"),
        (fsdp(fsdp_activation_checkpointing=True), "set `activation_checkpointing: true`"),
        (fsdp(fsdp_ignored_modules="visual"), "gradients of what is not sharded are never"),
        (mesh(dp_replicate_size=2, dp_shard_size=2), "is 2 x 2, and the stage has 8 ranks"),
        (mesh(dp_replicate_size=8), "dp_shard_size is 1, which shards nothing"),
        (mesh(dp_shard_size=4, tp_size=2), "each rank reads its own samples here"),
        ({"distributed_type": "MULTI_GPU", "parallelism_config": {"dp_shard_size": 8}}, "alone"),
    ],
)
def test_what_cannot_be_is_named_with_its_remedy(values, words):
    found = find_problems(values, ASKER)
    assert any(words in problem for problem in found), found


def test_a_precision_of_the_spec_must_agree_with_the_files():
    values = {"distributed_type": "MULTI_GPU", "mixed_precision": "fp16"}
    asker = SpecValues(num_ranks=2, num_nodes=1, device="cuda", precision="bf16")
    (problem,) = find_problems(values, asker)
    assert "mixed_precision is fp16, and the stage's precision is bf16" in problem


def test_a_distributed_type_of_one_rank_must_be_no():
    asker = SpecValues(num_ranks=1, num_nodes=1, device="cuda", precision="auto")
    assert find_problems({"distributed_type": "NO"}, asker) == []
    (problem,) = find_problems({"distributed_type": "MULTI_GPU"}, asker)
    assert "needs two ranks or more" in problem


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats()
values_of_yaml = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KNOWN_KEYS)), values_of_yaml), values_of_yaml)
def test_any_content_of_a_file_gives_problems_as_text_and_no_exception(values, other):
    for each in (values, {**values, "distributed_type": "FSDP"}, other):
        assert all(isinstance(problem, str) for problem in find_problems(each, ASKER))


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KNOWN_FSDP_KEYS)), values_of_yaml))
def test_any_file_without_problems_is_understood(keys):
    values = fsdp(**keys)
    if not find_problems(values, ASKER):
        assert understand(values).distributed_type == "FSDP"
