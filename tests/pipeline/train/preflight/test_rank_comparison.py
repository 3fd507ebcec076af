"""Ranks that differ, and cards, builds and libraries that do not go together."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from torch.cuda import DEVICE_REQUIREMENT

from pipeline.train.device.card_support import card_problem, compile_warning, runs_on
from pipeline.train.phase import phases_of
from pipeline.train.preflight.library_check import library_problem
from pipeline.train.preflight.rank_comparison import RankFacts, compare_ranks
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.train.preflight.cards import A100, CPU, CU130, H100, V100, V100_32, card


def config_of(**values) -> TrainConfig:
    return build_config(TrainConfig, {"num_steps": 1, **values})


def ranks_on(*devices, **changes):
    """Two ranks on each of these, node after node; `changes` are those of the last rank."""
    found = [
        RankFacts(
            node_name=f"node-{number}",
            device=device,
            versions={"torch": device.torch_version, "peft": "0.21.2"},
            precision="bf16",
            num_compute_threads=8,
            config="abc",
        )
        for number, device in enumerate(devices)
        for _ in range(2)
    ]
    return [*found[:-1], dataclasses.replace(found[-1], **changes)]


OTHER_PAGES = card(A100.name, (8, 0), total_gb=42.0)
OTHER_CPU = dataclasses.replace(CPU, name="AMD EPYC")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *((device, device) for device in (V100, A100, H100, CPU)),
        (A100, OTHER_PAGES),  # what retired pages take
        (CPU, OTHER_CPU),
    ],
)
def test_ranks_that_are_alike_have_nothing_to_say(first, second):
    assert compare_ranks(ranks_on(first, second)) == ([], [])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"versions": {"torch": "2.12.1+cu126", "peft": "0.21.2"}},
            (
                "ranks are not alike: torch is 2.13.0+cu126 on ranks 0-2 (node-0, node-1), "
                "2.12.1+cu126 on rank 3 (node-1): give all nodes the same environment (the "
                "stage's python, setup lines)"
            ),
        ),
        (
            {"versions": {"torch": "2.13.0+cu126"}},
            "peft is 0.21.2 on ranks 0-2 (node-0, node-1), missing on rank 3 (node-1)",
        ),
        ({"precision": "fp16"}, "precision is bf16 on ranks 0-2 (node-0, node-1), fp16 on rank 3"),
        ({"config": "abd"}, "the stage's config is abc on ranks 0-2"),
    ],
)
def test_another_version_precision_or_config_names_ranks_nodes_and_values(changes, told):
    (problem,), _ = compare_ranks(ranks_on(A100, A100, **changes))
    assert told in problem


def test_mixed_cards_are_a_problem():
    (problem,), _ = compare_ranks(ranks_on(A100, H100))
    assert "NVIDIA A100-SXM4 (compute capability 8.0) on ranks 0-1 (node-0)" in problem
    assert "NVIDIA H100 HBM3 (compute capability 9.0) on ranks 2-3 (node-1)" in problem
    assert "request one kind of card" in problem


def test_cards_that_differ_only_in_memory_are_a_warning():
    problems, (warning,) = compare_ranks(ranks_on(V100, V100_32))
    assert problems == []
    assert warning == (
        "ranks are not alike: memory of the card is 16.9 GB on ranks 0-1 (node-0), 34.1 GB on "
        "ranks 2-3 (node-1): the smallest bounds what a microbatch may hold"
    )


def test_different_cards_of_one_capability_are_a_warning():
    other = card("NVIDIA A100-PCIE-40GB", A100.capability, total_gb=A100.total_bytes / 1e9)
    problems, (warning,) = compare_ranks(ranks_on(A100, other))
    assert problems == []
    assert "NVIDIA A100-PCIE (compute capability 8.0) on ranks 2-3 (node-1)" in warning
    assert warning.endswith("all run at the pace of the slowest")


@pytest.mark.parametrize("device", [CPU, A100])
def test_a_different_number_of_threads_is_a_warning(device):
    told = (
        "ranks are not alike: the number of compute threads is 8 on rank 0 (node-0), 4 on rank 1 "
        "(node-0): set num_compute_threads"
    )
    assert compare_ranks(ranks_on(device, num_compute_threads=4)) == ([], [told])


PLAIN = TrainConfig(num_steps=1)
CARDS = ((6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
"""Of data centres and workstations; those on boards of their own (8.7) follow other rules."""


@pytest.mark.parametrize("capability", CARDS)
def test_machine_code_runs_where_torchs_own_table_says(capability):
    number = 10 * capability[0] + capability[1]
    runs = {code for code in DEVICE_REQUIREMENT if runs_on([f"sm_{code}"], capability)}
    told = {code for code, devices in DEVICE_REQUIREMENT.items() if number in devices}
    on_boards = {53, 62, 72, 87, 101}
    assert runs - on_boards == told - on_boards


@pytest.mark.parametrize(
    ("entry", "runs"),
    [
        ("compute_70", ((7, 0), (7, 5), (8, 0), (9, 0), (10, 0), (10, 3), (12, 0))),
        ("compute_90a", ((9, 0),)),
        ("sm_90a", ((9, 0),)),
        ("sm_100f", ((10, 0), (10, 3))),
    ],
)
def test_ptx_runs_on_newer_cards_unless_a_suffix_binds_it_to_some(entry, runs):
    cards = ((6, 0), (7, 0), (7, 5), (8, 0), (9, 0), (10, 0), (10, 3), (12, 0))
    assert tuple(each for each in cards if runs_on([entry], each)) == runs


def test_a_list_of_other_makers_cards_says_nothing():
    assert runs_on(["gfx90a", "gfx942"], (9, 0))


NF4 = config_of(adapters={"rank": 4}, quantize={"kind": "nf4"})
OLD = card("Tesla M40", (5, 2), total_gb=12.0)


@pytest.mark.parametrize(
    ("facts", "config", "said"),
    [
        *((facts, PLAIN, None) for facts in (V100, A100, H100, CPU, OLD)),
        (
            dataclasses.replace(V100, arch_list=CU130, torch_version="2.13.0+cu130"),
            PLAIN,
            (
                "torch 2.13.0+cu130 has no code for Tesla V100-SXM2-16GB (compute capability 7.0), "
                "but for sm_75, sm_80"
            ),
        ),
        # 4 bits are refused on cards older than their kernels.
        (V100, NF4, None),
        (OLD, NF4, "Tesla M40 (compute capability 5.2)"),
    ],
)
def test_a_build_or_kernels_that_a_card_cannot_run_are_named_with_the_card(facts, config, said):
    problem = card_problem(facts, config)
    assert problem is None if said is None else said in problem
    if facts.torch_version.endswith("cu130"):
        assert "pip install 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126" in (
            problem
        )


def test_a_card_that_is_newer_than_the_build_wants_a_newer_build():
    problem = card_problem(card("NVIDIA B200", (10, 0), total_gb=190.0), PLAIN)
    assert "has no code for NVIDIA B200 (compute capability 10.0)" in problem
    assert "sm_100" in problem
    assert "cu126" not in problem.split(":", 1)[1]


@pytest.mark.parametrize(
    ("facts", "options", "warns"),
    [
        (V100, {"compile": {}}, True),
        (V100, {"compile": {"backend": "eager"}}, False),
        (V100, {}, False),
        (A100, {"compile": {}}, False),
        (CPU, {"compile": {}}, False),
    ],
)
def test_triton_kernels_on_an_unsupported_card_cause_a_warning(facts, options, warns):
    warning = compile_warning(facts, config_of(**options))
    assert (warning is not None) == warns
    if warning:
        assert "Tesla V100" in warning
        assert warning.endswith("remove `compile`")


PHASES = [
    {"name": "first", "num_steps": 1},
    {"name": "second", "num_steps": 1, "optimizer": {"kind": "adamw_8bit"}},
]


@pytest.mark.parametrize(
    ("values", "library", "told"),
    [
        ({"adapters": {"rank": 4}}, "peft", "adapters"),
        ({"adapters": {"rank": 4}, "quantize": {}}, "bitsandbytes", "quantize"),
        ({"optimizer": {"kind": "adamw_8bit"}}, "bitsandbytes", "optimizer.kind: adamw_8bit"),
        (
            {"num_steps": None, "phases": PHASES},
            "bitsandbytes",
            "phases.1.optimizer.kind: adamw_8bit",
        ),
    ],
)
def test_a_missing_library_is_named_with_the_key_that_needs_it(monkeypatch, values, library, told):
    phases = phases_of(config_of(**values))
    assert library_problem(phases) is None
    monkeypatch.setitem(sys.modules, library, None)
    problem = library_problem(phases)
    assert problem.startswith(f"{told} needs {library}")
    assert f"-m pip install --force-reinstall {library}; or " in problem


def test_a_training_that_needs_none_of_them_does_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert library_problem(phases_of(PLAIN)) is None
