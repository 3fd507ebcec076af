"""Peak rates of cards from their vendor's data sheets: dense products of matrices.

Data sheets of later cards print figures "with sparsity", which are twice as high; those are
halved here. A card that is not in the table has no MFU: a guess would be worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """Cards of one kind."""

    name: str
    """Pattern of the whole name from the driver."""
    flops_per_s: Mapping[str, float]
    """By precision: `bf16`, `fp16` (tensor cores, fp32 sums), `fp32` and `tf32` (fp32 products
    by tensor cores)."""
    source: str


_GB = r"[ -]\d+GB"


def _ampere_on(half: float, single: float, tf32: float) -> Mapping[str, float]:
    return {"bf16": half, "fp16": half, "fp32": single, "tf32": tf32}


CARDS = (
    Card(
        name=rf"Tesla V100-SXM2{_GB}(-LS)?|Tesla V100-SXM3{_GB}(-H)?",
        flops_per_s={"fp16": 125e12, "fp32": 15.7e12},
        source="NVIDIA V100 Tensor Core GPU data sheet, January 2020",
    ),
    Card(
        name=rf"Tesla V100-PCIE{_GB}",
        flops_per_s={"fp16": 112e12, "fp32": 14e12},
        source="NVIDIA V100 Tensor Core GPU data sheet, January 2020",
    ),
    Card(
        name=rf"Tesla V100S-PCIE{_GB}",
        flops_per_s={"fp16": 130e12, "fp32": 16.4e12},
        source="NVIDIA V100 Tensor Core GPU data sheet, January 2020",
    ),
    Card(
        name=r"(Tesla|NVIDIA) T4",
        flops_per_s={"fp16": 65e12, "fp32": 8.1e12},
        source="NVIDIA T4 Tensor Core GPU data sheet",
    ),
    Card(
        name=r"(NVIDIA )?A100[- ](SXM4-)?(PCIE-)?(40GB|80GB)( PCIe)?",
        flops_per_s=_ampere_on(312e12, 19.5e12, 156e12),
        source="NVIDIA A100 Tensor Core GPU data sheet, June 2021",
    ),
    Card(
        name=r"NVIDIA A10",
        flops_per_s=_ampere_on(125e12, 31.2e12, 62.5e12),
        source="NVIDIA A10 Tensor Core GPU data sheet",
    ),
    Card(
        name=r"NVIDIA A30",
        flops_per_s=_ampere_on(165e12, 10.3e12, 82e12),
        source="NVIDIA A30 Tensor Core GPU data sheet",
    ),
    Card(
        name=r"NVIDIA A40",
        flops_per_s=_ampere_on(149.7e12, 37.4e12, 74.8e12),
        source="NVIDIA A40 data sheet",
    ),
    Card(
        name=r"NVIDIA L4",
        flops_per_s=_ampere_on(121e12, 30.3e12, 60e12),
        source="NVIDIA L4 Tensor Core GPU data sheet",
    ),
    Card(
        name=r"NVIDIA L40S",
        flops_per_s=_ampere_on(362e12, 91.6e12, 183e12),
        source="NVIDIA L40S data sheet",
    ),
    Card(
        name=r"NVIDIA H100 80GB HBM3",  # SXM5
        flops_per_s=_ampere_on(989e12, 67e12, 494e12),
        source="NVIDIA H100 Tensor Core GPU data sheet (SXM)",
    ),
    Card(
        name=r"NVIDIA H100 PCIe",
        flops_per_s=_ampere_on(756e12, 51e12, 378e12),
        source="NVIDIA H100 Tensor Core GPU data sheet (PCIe)",
    ),
    Card(
        name=r"NVIDIA H100 NVL",
        flops_per_s=_ampere_on(835e12, 60e12, 417e12),
        source="NVIDIA H100 Tensor Core GPU data sheet (NVL)",
    ),
    Card(
        name=r"NVIDIA H200",
        flops_per_s=_ampere_on(989e12, 67e12, 494e12),
        source="NVIDIA H200 Tensor Core GPU data sheet (SXM)",
    ),
    Card(
        name=r"NVIDIA H200 NVL",
        flops_per_s=_ampere_on(835e12, 60e12, 417e12),
        source="NVIDIA H200 Tensor Core GPU data sheet (NVL)",
    ),
    Card(
        name=r"(NVIDIA )?GH200 (120GB|480GB|144G HBM3e)",
        flops_per_s=_ampere_on(989e12, 67e12, 494e12),
        source="NVIDIA GH200 Grace Hopper Superchip data sheet",
    ),
    Card(
        name=r"NVIDIA B200",
        flops_per_s=_ampere_on(2250e12, 80e12, 1100e12),
        source="NVIDIA Blackwell Architecture Technical Brief (HGX B200)",
    ),
)
"""Names are matched as a whole, so MIG slices and custom cards, which are slower or faster,
match nothing."""


def find_card(name: str) -> Card | None:
    """Return the card of a name from `torch.cuda.get_device_name`; None: unknown."""
    return next((card for card in CARDS if re.fullmatch(card.name, name)), None)


def peak_flops_per_s(name: str, precision: str) -> float | None:
    """Return the rate of a card in a precision; None if the card is unknown or lacks it."""
    card = find_card(name)
    return None if card is None else card.flops_per_s.get(precision)
