"""Peak rates of cards, by their data sheets."""

from __future__ import annotations

import pytest

from pipeline.timing.card_peaks import peak_flops_per_s


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-SXM2-32GB", "fp32", 15.7e12),
        ("Tesla V100-SXM2-32GB", "bf16", None),
        ("Tesla V100-SXM2-32GB", "tf32", None),
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
