"""The formula by hand, and peaks of cards; `tests/pipeline/models/test_work.py` has real passes."""

import pytest

from pipeline.timing.flops import (
    CARDS,
    ModelWork,
    PartWork,
    WorkCounts,
    find_card,
    mfu,
    model_flops,
    peak_flops_per_s,
)

NOTHING = PartWork()


def language(num_weights, **work):
    return ModelWork(
        vision=NOTHING,
        projector=NOTHING,
        language=PartWork(num_weights=num_weights, **work),
        head=NOTHING,
    )


def test_a_trained_model_takes_six_operations_a_weight_and_token_and_twelve_for_attention():
    """PaLM, appendix B: 6 N + 12 L H Q T a token; here of 3 rows of 100 tokens, L H Q = 64."""
    work = language({3: 1000}, attention_width={3: 64})
    counts = WorkCounts(num_tokens=300, num_token_pairs=3 * 100**2)
    assert model_flops(work, counts) == 300 * (6 * 1000 + 12 * 64 * 100)


def test_frozen_weights_take_four_where_a_gradient_passes_and_two_where_none_does():
    counts = WorkCounts(num_tokens=10, num_token_pairs=100)
    passed = language({2: 1000}, attention_width={3: 64})
    assert model_flops(passed, counts) == 10 * 4 * 1000 + 12 * 64 * 100
    assert (
        model_flops(language({1: 1000}, attention_width={1: 64}), counts) == 20_000 + 4 * 64 * 100
    )


def test_each_part_counts_its_own():
    work = ModelWork(
        vision=PartWork(num_weights={2: 1, 3: 10}, attention_width={1: 8}, window_width={1: 4}),
        projector=PartWork(num_weights={3: 100}),
        language=PartWork(num_weights={3: 1000}),
        head=PartWork(num_weights={3: 10_000}),
    )
    counts = WorkCounts(
        num_patches=16,
        num_patch_pairs=256,
        num_window_pairs=64,
        num_image_tokens=4,
        num_tokens=20,
        num_learned=5,
    )
    vision = 16 * (4 + 60) + 4 * (8 * 256 + 4 * 64)
    assert model_flops(work, counts) == vision + 4 * 600 + 20 * 6000 + 5 * 60_000
    assert model_flops(work, counts + counts) == 2 * model_flops(work, counts)


def test_mfu_is_a_share_of_the_peak_and_none_without_one():
    assert mfu(50e12, 0.5, 312e12) == pytest.approx(100 / 312)
    assert mfu(50e12, 0.5, None) is None
    assert mfu(50e12, 0.0, 312e12) is None


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-SXM2-32GB", "fp32", 15.7e12),
        ("Tesla V100-PCIE-16GB", "fp16", 112e12),
        ("Tesla V100S-PCIE-32GB", "fp16", 130e12),
        ("Tesla T4", "fp16", 65e12),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312e12),
        ("NVIDIA A100-SXM4-80GB", "fp16", 312e12),
        ("A100-SXM4-40GB", "bf16", 312e12),
        ("NVIDIA A100-PCIE-40GB", "bf16", 312e12),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5e12),
        ("NVIDIA A40", "bf16", 149.7e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "bf16", 362e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H100 NVL", "bf16", 835e12),
        ("NVIDIA H200", "bf16", 989e12),
        ("NVIDIA H200", "tf32", 494e12),
        ("NVIDIA H200 NVL", "bf16", 835e12),
        ("NVIDIA GH200 480GB", "bf16", 989e12),
        ("NVIDIA B200", "bf16", 2250e12),
        ("NVIDIA A10", "bf16", 125e12),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156e12),
    ],
)
def test_a_known_card_has_the_peak_of_its_data_sheet(name, precision, peak):
    assert peak_flops_per_s(name, precision) == peak


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A100-SXM-64GB",  # a card made for one site
        "NVIDIA L40",
        "NVIDIA A10G",
        "NVIDIA GB200",
        "NVIDIA GeForce RTX 4090",
        "",
    ],
)
def test_an_unknown_card_has_none_though_its_name_holds_that_of_another(name):
    assert peak_flops_per_s(name, "bf16") is None


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_v100_has_neither_bf16_nor_tf32(precision):
    assert peak_flops_per_s("Tesla V100-SXM2-16GB", precision) is None


def test_tf32_is_half_as_fast_as_bf16_and_faster_than_fp32():
    for card in CARDS:
        if "tf32" in card.flops_per_s:
            assert card.flops_per_s["tf32"] == pytest.approx(card.flops_per_s["bf16"] / 2, rel=0.03)
            assert card.flops_per_s["tf32"] > card.flops_per_s["fp32"]


def test_each_card_names_its_source():
    assert all(card.source.startswith("NVIDIA ") for card in CARDS)
    assert find_card("NVIDIA A30").source.startswith("NVIDIA A30")
