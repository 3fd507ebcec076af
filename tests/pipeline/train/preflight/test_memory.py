"""What memory must hold, on cards, nodes and disks, and what is said where it does not.

What real trainings hold is compared in `strategies`.
"""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.finetuning.adapters import merge_adapters
from pipeline.models.finetuning.packed_linear import dequantize_weights
from pipeline.train import export
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.memory.ending_memory import EndingNeed, ending_need, judge_ending
from pipeline.train.memory.host_memory import (
    HostMemory,
    cgroup_limits,
    read_host_memory,
    slurm_limits,
)
from pipeline.train.memory.measured_memory import extrapolate, measure_growth
from pipeline.train.memory.memory_fit import judge_card, judge_node, remedies
from pipeline.train.memory.memory_need import (
    MemoryNeed,
    checkpoint_bytes,
    describe_need,
    memory_need,
    optimizer_bytes,
)
from pipeline.train.memory.sharing import Sharing, sharing_of
from pipeline.train.memory.tensor_sizes import ModelSizes, TensorSizes
from pipeline.train.preflight.disk_space import disk_warning
from pipeline.train.preflight.rank_checks import node_warning
from pipeline.train.strategies.rank_mesh import RankPlace
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.machine import memory_bytes
from slurm_jobs.formats.accelerate_file import understand
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from tests.contexts import make_context
from tests.pipeline.train.preflight.cards import A100, CPU, H100, V100, V100_32, card
from tests.pipeline.train.tiny_runs import rows_of, tiny_config

MB, GB = 10**6, 10**9
MIB = 2**20
HERE = torch.device("cpu")


def config_of(**values) -> TrainConfig:
    return build_config(TrainConfig, {"num_steps": 1, **values})


# What a node's memory is.


@pytest.mark.parametrize(
    ("variables", "mib"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, {"SLURM_MEM_PER_NODE": 4096}),
        (
            {"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "6"},
            {"SLURM_MEM_PER_CPU": 3072},
        ),
        (
            {"SLURM_MEM_PER_GPU": "1000", "SLURM_GPUS_ON_NODE": "4"},
            {"SLURM_MEM_PER_GPU": 4000},
        ),
        ({"SLURM_MEM_PER_GPU": "1000"}, {}),
        ({"SLURM_MEM_PER_NODE": "0"}, {}),
        ({}, {}),
    ],
)
def test_slurm_says_memory_for_a_node_a_cpu_or_a_gpu_and_0_means_all(variables, mib):
    assert slurm_limits(variables) == {name: number * MIB for name, number in mib.items()}


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        (
            "0::/slurm/job_7/step_0\n",
            {
                "slurm/job_7/step_0/memory.max": "max\n",
                "slurm/job_7/memory.max": "1000\n",
                "slurm/memory.max": "9000\n",
            },
            {"slurm/job_7/memory.max": 1000, "slurm/memory.max": 9000},
        ),
        (
            "5:cpuset:/slurm\n4:memory:/slurm/job_7\n",
            {
                "memory/slurm/job_7/memory.limit_in_bytes": "1000\n",
                "memory.max": "5\n",  # not of this hierarchy
            },
            {"memory/slurm/job_7/memory.limit_in_bytes": 1000},
        ),
        ("0::/docker/abc\n", {"memory.max": "1000\n"}, {"memory.max": 1000}),
        (None, {}, {}),
    ],
    ids=["a group and those above it", "version 1", "in a container", "no cgroups"],
)
def test_limits_of_cgroups_are_those_of_their_files(tmp_path, own, files, limits):
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = dict(cgroup_limits(tmp_path / "own", tmp_path / "cgroup"))
    assert found == {str(tmp_path / "cgroup" / name): limit for name, limit in limits.items()}


def test_the_smallest_limit_of_this_machine_counts_and_says_whose_it_is():
    found = read_host_memory({"SLURM_MEM_PER_NODE": "1"})
    assert (found.limit_bytes, found.source) == (MIB, "SLURM_MEM_PER_NODE")
    free = read_host_memory({})
    assert 0 < free.limit_bytes <= memory_bytes()
    assert free.available_bytes > 0


WRITES_64_MIB = """
import mmap
from pipeline.train.memory.host_memory import resident_bytes
before = resident_bytes()
held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for start in range(0, 64 << 20, 1 << 20):
    held[start : start + (1 << 20)] = bytes(1 << 20)
print(resident_bytes() - before)
"""


def test_memory_that_is_written_is_resident():
    # In a process of its own: the kernel may take back what other tests left in this one.
    command = [sys.executable, "-c", WRITES_64_MIB]
    written = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert written == pytest.approx(64 * MIB, rel=0.05)


# Peaks that are measured.


def test_the_peak_is_what_lives_at_once():
    def work() -> None:
        kept = torch.empty(3 * MIB, dtype=torch.uint8)
        for _ in range(5):
            torch.empty(2 * MIB, dtype=torch.uint8)
        kept.untyped_storage().resize_(4 * MIB)  # as FSDP does, which no operator shows

    # Resizing copies: both are there meanwhile.
    assert measure_growth(work, HERE).peak_bytes == pytest.approx(7 * MIB, rel=0.01)


def test_what_was_there_before_and_is_given_back_makes_no_room():
    held = [torch.empty(3 * MIB, dtype=torch.uint8)]

    def work() -> None:
        held.clear()
        held.append(torch.empty(4 * MIB, dtype=torch.uint8))

    peak_bytes = measure_growth(work, HERE).peak_bytes
    assert peak_bytes == pytest.approx(4 * MIB, rel=0.01), "too much, never too little"


@pytest.mark.parametrize("num_rows", [1, 64])
def test_a_backward_pass_holds_the_activations_of_its_rows(num_rows):
    layers = torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(8)))
    rows = torch.ones(num_rows, 65_536, requires_grad=True)
    # Eight outputs are kept when the first gradient is made; then each makes room for the next.
    growth = measure_growth(lambda: layers(rows).sum().backward(), HERE)
    assert growth.peak_bytes == pytest.approx(9 * rows.nbytes, rel=0.001)
    assert growth.left_bytes == rows.grad.nbytes
    assert growth.then(growth).peak_bytes == growth.peak_bytes + rows.grad.nbytes


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ([(1, 110)], 100 + 4 * 10),
        ([(1, 200), (2, 210)], 100 + 2 * 110),  # nothing has tested the line yet
        ([(1, 200), (2, 210), (3, 220)], 230),
        ([(1, 200), (2, 202), (3, 210)], 218 + 2 * 6),  # it foretold 204
        ([(1, 105), (2, 110), (3, 145)], 100 + 45 * 4 / 3),
    ],
)
def test_what_is_fixed_stays_and_a_line_is_followed_as_far_as_it_was_right(peaks, expected):
    assert extrapolate(peaks, 100, 4) == pytest.approx(expected)


# What a training needs, by hand.

WHOLE = Sharing(is_sharded=False, num_shards=1)
IN_TWO = Sharing(is_sharded=True, num_shards=2, accumulates_whole=True)


def tensor(name: str, *shape: int, **changes) -> TensorSizes:
    values = {
        "name": name,
        "shape": shape,
        "itemsize": 4,
        "is_packed": False,
        "is_multiplied": len(shape) == 2,
        "num_weights": math.prod(shape),
        "unit": None,
        **changes,
    }
    return TensorSizes(**values)


SIZES = ModelSizes(
    parameters=(
        tensor("embed", 10, 8, is_multiplied=False),
        tensor("first", 8, 8, unit=0),
        tensor("second", 9, 8, unit=1),
        tensor("packed", 160, 1, unit=2, itemsize=1, is_packed=True, num_weights=320),
        tensor("bias", 5, unit=2),
    ),
    buffer_bytes=12,
    hidden_size=8,
    num_layers=3,
)
ALL_FLOATS = ("embed", "first", "second", "bias")
NUM = 80 + 64 + 72 + 5


def need(sharing=WHOLE, learned=ALL_FLOATS, **changes):
    options = {
        "compute_itemsize": 2,
        "optimizer_kind": "adamw",
        "num_microbatches": 1,
        "num_tokens": 100,
        **changes,
    }
    return memory_need(SIZES, learned, sharing, **options)


def test_a_whole_model_holds_weights_gradients_and_two_moments():
    found = need()
    assert (found.weights_bytes, found.buffers_bytes) == (4 * NUM + 160, 12)
    assert found.gradients_bytes == 4 * NUM
    assert found.optimizer_bytes == 8 * NUM + 4 * 4, "and a count of steps for each"
    assert found.state_bytes == found.least_bytes == 16 * NUM + 160 + 12 + 16
    assert found.saved_bytes == checkpoint_bytes(SIZES, ALL_FLOATS, "adamw")


def test_evaluation_during_training_gathers_the_whole_sharded_model():
    found, blind = need(IN_TWO, evaluates_held_out=True), need(IN_TWO)
    assert (blind.gathered_bytes, found.gathered_bytes) == (0, 2 * NUM + 160)
    assert found.least_bytes == max(
        blind.least_bytes, found.weights_bytes + found.optimizer_bytes + 12 + found.gathered_bytes
    )
    alone = need(IN_TWO, learned=("bias",), evaluates_held_out=True)
    assert alone.least_bytes == alone.weights_bytes + alone.optimizer_bytes + 12 + 2 * NUM + 160
    assert alone.least_bytes > need(IN_TWO, learned=("bias",)).least_bytes
    assert alone.expected_bytes >= alone.least_bytes
    assert need(evaluates_held_out=True) == need(), "a whole model gathers nothing"
    offloaded = dataclasses.replace(IN_TWO, offloads=True)
    assert (
        need(offloaded, learned=("bias",), evaluates_held_out=True).least_bytes
        == 12 + 2 * NUM + 160
    )


def test_what_is_frozen_has_neither_gradient_nor_state():
    found = need(learned=("bias",))
    assert (found.gradients_bytes, found.optimizer_bytes) == (20, 44)


def test_rows_are_shared_out_and_the_first_rank_has_the_odd_one():
    found = need(IN_TWO)
    num = 40 + 32 + 5 * 8 + 3
    assert found.weights_bytes == 4 * num + 80
    assert found.gradients_bytes == 4 * num
    assert found.buffers_bytes == 12, "which are never shared out"


@pytest.mark.parametrize(
    ("sharing", "options", "num_bytes"),
    [
        (WHOLE, {}, 2 * (64 + 72)),  # autocast copies float matrices in half precision alone
        (WHOLE, {"compute_itemsize": 4}, 0),
        # Gathered at once: the rest, the largest layers, and packed ones as they are.
        (IN_TWO, {}, 2 * 80 + 160 + 2 * 5),
        (dataclasses.replace(IN_TWO, num_ahead=1), {}, 2 * 80 + 2 * 72 + 160 + 2 * 5),
        (dataclasses.replace(IN_TWO, keeps_gathered=True), {}, 2 * NUM + 160),
    ],
)
def test_computing_takes_what_is_copied_or_gathered(sharing, options, num_bytes):
    assert need(sharing, **options).computing_bytes == num_bytes


def test_whole_gradients_between_microbatches_count_where_they_are_kept():
    one, two = need(IN_TWO), need(IN_TWO, num_microbatches=2)
    assert (one.accumulated_bytes, two.accumulated_bytes) == (0, 4 * NUM)
    assert two.least_bytes - one.least_bytes == 4 * NUM - one.gradients_bytes
    reduced = dataclasses.replace(IN_TWO, accumulates_whole=False)
    assert need(reduced, num_microbatches=2).accumulated_bytes == 0
    assert need(WHOLE, num_microbatches=2).accumulated_bytes == 0, "they are the gradients"


def test_offloaded_state_is_not_on_the_card():
    found = need(dataclasses.replace(IN_TWO, offloads=True), num_microbatches=2)
    assert found.least_bytes == found.buffers_bytes + found.accumulated_bytes
    assert found.offloaded_bytes == found.state_bytes - found.buffers_bytes
    assert need(IN_TWO).offloaded_bytes == 0


def test_activations_are_at_least_the_inputs_of_all_layers():
    found = need()
    assert found.activations_bytes == 100 * 8 * 2 * 3
    assert found.expected_bytes == sum(
        (found.least_bytes, found.computing_bytes, found.activations_bytes)
    )
    assert need(residual_itemsize=4).activations_bytes == 2 * found.activations_bytes


@pytest.mark.parametrize(
    ("length", "num_bytes"), [(0, 0), (40, 2 * 40**2 * 2), (100, 100**2 * 2), (300, 300**2 * 2)]
)
def test_mask_of_packed_rows_is_a_number_for_each_pair_of_places(length, num_bytes):
    found = need(masked_length=length)
    assert found.mask_bytes == num_bytes
    assert found.expected_bytes - need().expected_bytes == num_bytes


@pytest.mark.parametrize(
    ("sizes", "kind", "num_bytes"),
    [
        ([4095], "adamw_8bit", 8 * 4095),
        ([4097], "adamw_8bit", 2 * 4097 + 8 * 17 + 2048),  # packed, a scale for each block
        ([99_999, 100_000], "paged_adamw", 8 * 99_999),  # large ones need not be on the card
        ([100_000], "paged_adamw_8bit", 8 * 391 + 2048),
    ],
)
def test_state_of_8_bit_and_paged_optimizers_depends_on_tensor_size(sizes, kind, num_bytes):
    assert optimizer_bytes(sizes, kind) == num_bytes


def test_a_checkpoint_has_what_learned_and_its_optimizer_on_all_ranks():
    assert checkpoint_bytes(SIZES, ("bias",), "adamw") == 20 + 44
    assert checkpoint_bytes(SIZES, ("embed",), "paged_adamw_8bit") == 4 * 80 + 8 * 80, "paged, too"


def test_read_weights_are_whole_and_as_they_are_stored():
    assert SIZES.stored_bytes == 4 * NUM + 160
    assert SIZES.num_weights == NUM + 320


# How strategies and files of accelerate share a model out, from the config alone.


def places(*counts: int) -> list[RankPlace]:
    return [
        RankPlace(node_name=f"node-{node}", local_rank=local)
        for node, count in enumerate(counts)
        for local in range(count)
    ]


def sharded(num_shards: int, **options) -> Sharing:
    return Sharing(is_sharded=True, num_shards=num_shards, **options)


OPTIONS = {
    "reshard_after_forward": False,
    "forward_prefetch": 2,
    "accumulate": "sharded",
    "cpu_offload": True,
}


@pytest.mark.parametrize(
    ("values", "ranks", "expected"),
    [
        ({}, (4, 4), sharded(8, accumulates_whole=True)),
        ({"sharding": {"within": "node"}}, (4, 4), sharded(4, accumulates_whole=True)),
        (
            {"sharding": OPTIONS},
            (2,),
            sharded(2, keeps_gathered=True, num_ahead=2, offloads=True),
        ),
        ({"strategy": "ddp"}, (2,), WHOLE),
        ({"strategy": "single"}, (2,), WHOLE),
    ],
)
def test_a_strategy_shares_out_as_the_config_says(values, ranks, expected):
    assert sharing_of(config_of(**values), None, places(*ranks)) == expected


def test_nodes_with_unequal_ranks_are_refused_before_anything_is_staged_in():
    with pytest.raises(StageConfigError, match="unequal numbers of ranks"):
        sharing_of(config_of(sharding={"within": "node"}), None, places(4, 3))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"distributed_type": "MULTI_GPU"}, WHOLE),
        (
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}},
            sharded(8, accumulates_whole=True, offloads=True),
        ),
        (
            {
                "distributed_type": "FSDP",
                "parallelism_config": {"dp_replicate_size": 2, "dp_shard_size": 4},
            },
            sharded(4, accumulates_whole=True),
        ),
    ],
)
def test_a_file_of_accelerate_shares_out_as_it_says(values, expected):
    by_file = config_of(strategy="accelerate", accelerate={"config": "a.yaml"})
    assert sharing_of(by_file, understand(values), places(4, 4)) == expected


# What does not fit is an error, what may not fit a warning, each with what to change.

NEED = MemoryNeed(
    weights_bytes=7 * GB,
    buffers_bytes=0,
    gradients_bytes=7 * GB,
    optimizer_bytes=14 * GB,
    accumulated_bytes=0,
    computing_bytes=3 * GB,
    activations_bytes=2 * GB,
    mask_bytes=0,
    offloads=False,
)


def test_state_that_is_larger_than_the_card_is_a_problem_that_adds_up():
    with pytest.raises(StageConfigError) as error:
        judge_card(NEED, V100, "take adapters")
    assert str(error.value) == (
        "each rank must hold at least 28.00 GB (weights 7.00 GB, gradients 7.00 GB, optimizer "
        "14.00 GB), but Tesla V100-SXM2-16GB (compute capability 7.0) has 16.90 GB: take adapters"
    )


def test_state_that_fits_with_no_room_for_the_rest_is_a_warning():
    warning = judge_card(NEED, card("NVIDIA A100-SXM4-40GB", (8, 0), total_gb=30.0), "")
    assert "will hold 33.00 GB or more" in warning
    assert "activations 2.00 GB or more), but NVIDIA A100-SXM4-40GB" in warning


def test_cards_with_room_are_warned_of_only_if_others_use_them():
    for facts in (A100, H100):
        assert judge_card(NEED, facts, "") is None
    shared = card("NVIDIA H100 80GB HBM3", (9, 0), total_gb=85.0, free_gb=60.0)
    assert "25.00 GB of NVIDIA H100 80GB HBM3" in judge_card(NEED, shared, "")


def on_a_node(least_gb: float, expected_gb: float, source="SLURM_MEM_PER_NODE") -> str | None:
    return judge_node(
        least_bytes=int(least_gb * GB),
        expected_bytes=int(expected_gb * GB),
        host=HostMemory(limit_bytes=8 * GB, source=source, available_bytes=6 * GB),
        node_name="node-3",
        remedy="take adapters",
    )


def test_a_node_with_too_little_memory_is_named_with_who_says_so():
    with pytest.raises(StageConfigError) as error:
        on_a_node(9, 9)
    assert str(error.value) == (
        "the ranks on node-3 must hold at least 9.00 GB, but SLURM_MEM_PER_NODE gives 8.00 GB: "
        "request more memory (resources.mem_gb), or take adapters"
    )
    assert "9.00 GB or more, but SLURM_MEM_PER_NODE gives" in on_a_node(1, 9)
    assert "6.00 GB are available there now" in on_a_node(1, 7)
    assert on_a_node(1, 2) is None
    # a default of the site, which may not be enforced
    assert "SLURM_MEM_PER_CPU gives 8.00 GB" in on_a_node(9, 9, "SLURM_MEM_PER_CPU")


@pytest.mark.parametrize(
    ("mode", "node_mib", "warns"),
    [("async", 2000, True), ("sync", 2000, False), ("async", 2400, False)],
)
def test_copies_of_checkpoints_are_counted_if_written_in_the_background(
    tmp_path, monkeypatch, mode, node_mib, warns
):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str(node_mib))
    job = SimpleNamespace(
        context=dataclasses.replace(make_context("train", tmp_path), num_local_ranks=2),
        config=config_of(checkpoint={"mode": mode}),
        rank_device=RankDevice(
            device=torch.device("cuda"), precision="bf16", num_compute_threads=1
        ),
    )
    without_work = dict.fromkeys(("computing_bytes", "activations_bytes"), 0)
    state = {"weights_bytes": 400 * MB, "gradients_bytes": 400 * MB, "optimizer_bytes": 800 * MB}
    sizes = ModelSizes(parameters=(), buffer_bytes=0, hidden_size=1, num_layers=1)
    small = dataclasses.replace(NEED, **state, **without_work)
    warning = node_warning(job, small, sizes, "train less")
    assert (warning is not None) == warns
    if warning:
        assert "must hold 2.40 GB or more, but SLURM_MEM_PER_NODE gives 2.10 GB" in warning
        assert warning.endswith("train less; or save at once (`checkpoint: {mode: sync}`)")


def remedies_of(num_ranks: int = 4, need: MemoryNeed = NEED, **values) -> list[str]:
    config = config_of(**values)
    kind = config.optimizer.kind
    return remedies(config, need, num_ranks=num_ranks, optimizer_kind=kind).split("; or ")


def test_remedies_are_what_the_config_does_not_have_yet_in_order():
    words = ["adapters", "quantize", "more ranks", "adamw_8bit", "cpu_offload"]
    assert [word in each for word, each in zip(words, remedies_of(), strict=True)] == [True] * 5
    qlora = remedies_of(
        adapters={"rank": 4},
        quantize={"kind": "nf4"},
        optimizer={"kind": "adamw_8bit"},
        sharding={"cpu_offload": True},
    )
    assert qlora == ["use more ranks under fsdp2 (resources.nodes, tasks_per_node)"]


def test_remedies_name_sharding_where_a_rank_or_node_has_whole_weights():
    assert "set `strategy: fsdp2`" in remedies_of(strategy="ddp")
    assert "set `strategy: fsdp2` with several ranks" in remedies_of(strategy="single", num_ranks=1)
    assert "set `sharding: {within: all}`" in remedies_of(sharding={"within": "node"})


def test_gradients_that_accumulate_whole_are_the_first_thing_to_change():
    whole = dataclasses.replace(NEED, accumulated_bytes=28 * GB)
    assert remedies_of(need=whole)[0] == "set `sharding: {accumulate: sharded}`"
    assert "gradients 28.00 GB" in describe_need(whole)


def disk(free_gb: float, num_present: int = 0) -> str | None:
    return disk_warning(
        checkpoint_bytes=10 * GB,
        keep_last=2,
        num_present=num_present,
        export_bytes=5 * GB,
        free_bytes=int(free_gb * GB),
        folder=Path("/runs/a"),
    )


def test_room_on_disk_is_for_the_kept_checkpoints_one_more_and_the_export():
    assert disk(35) is None
    assert disk(34.9) == (
        "/runs/a has 34.90 GB free, but 35.00 GB are still to be written (checkpoints 3 "
        "x 10.00 GB, the export 5.00 GB): free space, or lower checkpoint.keep_last (2)"
    )
    assert "has 34.99 GB free, but 35.00 GB are" in disk(34.9999)
    # Those that are there already take no new room.
    assert disk(25, num_present=1) is None
    assert disk(15, num_present=2) is None
    assert "checkpoints 1 x" in disk(14, num_present=5)


# What comes after the last step is counted before the first, and warned of.


def test_the_export_counts_unpacked_layers_and_merged_adapters():
    embed = tensor("embed", 100)
    layer = tensor("q.base_layer.weight", 300, itemsize=1, is_packed=True, num_weights=600)
    low = tensor("q.lora_A.default.weight", 10)
    sizes = dataclasses.replace(SIZES, parameters=(embed, layer, low))
    found = ending_need(sizes, evaluation_itemsize=2)
    assert found.export_bytes == (400 + 300 + 40) + 4 * 600 + 4 * 600
    assert found.evaluation_bytes == 2 * 700, "adapters are merged"
    whole = ending_need(dataclasses.replace(SIZES, parameters=(embed,)), evaluation_itemsize=None)
    assert (whole.export_bytes, whole.evaluation_bytes) == (400, 0), "gathered once"


def ending(evaluation_gb, *, export_gb=0, device=V100_32, host_gb=100, exports=True):
    need = EndingNeed(export_bytes=export_gb * GB, evaluation_bytes=evaluation_gb * GB)
    limit = host_gb * GB
    host = HostMemory(limit_bytes=limit, source="SLURM_MEM_PER_NODE", available_bytes=limit)
    options = {"exports": exports, "num_local_ranks": 4, "node_name": "node-3"}
    return list(judge_ending(need, card=device, host=host, **options))


CARD_TOO_SMALL = (
    "the evaluation after training will hold the whole model on each rank's card, 17.00 GB or "
    "more, but Tesla V100-SXM2-16GB (compute capability 7.0) has 16.90 GB: use cards with more "
    "memory, or disable it (`evaluate: {manifest: null}`)"
)
NODE_TOO_SMALL = (
    "the evaluation after training will read the whole model on each of the 4 ranks on node-3, "
    "68.00 GB or more together, but SLURM_MEM_PER_NODE gives 64.00 GB: request more memory "
    "(resources.mem_gb), or disable it (`evaluate: {manifest: null}`)"
)
EXPORT_TOO_LARGE = (
    "the export after training will take 62.00 GB or more of the memory of node-3, where rank 0 "
    "gathers the weights, but SLURM_MEM_PER_NODE gives 8.00 GB: request more memory "
    "(resources.mem_gb)"
)


@pytest.mark.parametrize(
    ("gb", "options", "warning"),
    [
        (17, {"device": V100_32}, None),
        (17, {"device": V100}, CARD_TOO_SMALL),
        (17, {"host_gb": 64, "device": CPU}, NODE_TOO_SMALL),
        (0, {"export_gb": 62, "host_gb": 8}, EXPORT_TOO_LARGE),
        (0, {"export_gb": 62, "host_gb": 8, "exports": False}, None),
    ],
    ids=["it fits", "a card", "all ranks of a node", "the export on rank 0", "no export"],
)
def test_too_little_memory_at_the_end_is_a_warning_with_a_remedy(gb, options, warning):
    assert ending(gb, **options) == ([] if warning is None else [warning])


@pytest.mark.parametrize("quantize", [None, {"kind": "nf4"}], ids=["fp32", "nf4"])
def test_what_is_counted_is_what_an_export_holds_and_an_evaluation_loads(
    made, make_train_run, monkeypatch, quantize
):
    held = {}

    def hold(model, weights, *rest):
        whole = dequantize_weights(model, weights, HERE)
        merged = merge_adapters(model, whole)
        pieces = [*weights.values(), *whole.values(), *merged.values()]
        held.update({t.untyped_storage().data_ptr(): t.numel() * t.itemsize for t in pieces})
        return really_write(model, weights, *rest)

    really_write = export._write_model
    monkeypatch.setattr(export, "_write_model", hold)
    evaluate = {"manifest": rows_of(made), "max_new_tokens": 1}
    config = {"num_steps": 1, "adapters": {"rank": 4}, "quantize": quantize, "evaluate": evaluate}
    run = make_train_run(**tiny_config(made, **config))
    counted = run.run_here()["preflight"]["memory"]
    assert counted["export_bytes"] == sum(held.values())
    exported = load_file(run.output_dir / "model" / "model.safetensors")
    assert counted["evaluation_bytes"] == sum(4 * t.numel() for t in exported.values())
