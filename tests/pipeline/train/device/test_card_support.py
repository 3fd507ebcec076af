"""Cards that a build of torch, its kernels or Triton's cannot compute on."""

from __future__ import annotations

import dataclasses

import pytest
from torch.cuda import DEVICE_REQUIREMENT

from pipeline.train.device.card_support import card_problem, compile_warning, runs_on
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.train.configs import config_of
from tests.pipeline.train.preflight.cards import A100, CPU, CU130, H100, V100, card

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
