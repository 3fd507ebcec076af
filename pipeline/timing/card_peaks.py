"""Peak rates of cards from their vendor's data sheets: dense products of matrices.

Data sheets of later cards print figures "with sparsity", which are twice as high; those are
halved here. A card that is not in the table has no MFU: a guess would be worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Card(NamedTuple):
    """Cards of one kind."""

    name: str
    """Pattern of the whole name from the driver."""
    flops_per_s: Mapping[str, float]
    """By precision: `bf16`, `fp16` (tensor cores, fp32 sums), `fp32` and `tf32` (fp32 products
    by tensor cores)."""
    source: str


_GB = r"[ -]\d+GB"
_SHEET = "Tensor Core GPU data sheet"


def _volta(half: float, single: float) -> Mapping[str, float]:
    return {"fp16": half, "fp32": single}


def _ampere(half: float, single: float, tf32: float) -> Mapping[str, float]:
    return {"bf16": half, "fp16": half, "fp32": single, "tf32": tf32}


_V100 = f"NVIDIA V100 {_SHEET}, January 2020"
CARDS = (
    Card(rf"Tesla V100-SXM2{_GB}(-LS)?|Tesla V100-SXM3{_GB}(-H)?", _volta(125e12, 15.7e12), _V100),
    Card(rf"Tesla V100-PCIE{_GB}", _volta(112e12, 14e12), _V100),
    Card(rf"Tesla V100S-PCIE{_GB}", _volta(130e12, 16.4e12), _V100),
    Card(r"(Tesla|NVIDIA) T4", _volta(65e12, 8.1e12), f"NVIDIA T4 {_SHEET}"),
    Card(
        r"(NVIDIA )?A100[- ](SXM4-)?(PCIE-)?(40GB|80GB)( PCIe)?",
        _ampere(312e12, 19.5e12, 156e12),
        f"NVIDIA A100 {_SHEET}, June 2021",
    ),
    Card(r"NVIDIA A10", _ampere(125e12, 31.2e12, 62.5e12), f"NVIDIA A10 {_SHEET}"),
    Card(r"NVIDIA A30", _ampere(165e12, 10.3e12, 82e12), f"NVIDIA A30 {_SHEET}"),
    Card(r"NVIDIA A40", _ampere(149.7e12, 37.4e12, 74.8e12), "NVIDIA A40 data sheet"),
    Card(r"NVIDIA L4", _ampere(121e12, 30.3e12, 60e12), f"NVIDIA L4 {_SHEET}"),
    Card(r"NVIDIA L40S", _ampere(362e12, 91.6e12, 183e12), "NVIDIA L40S data sheet"),
    # SXM5
    Card(r"NVIDIA H100 80GB HBM3", _ampere(989e12, 67e12, 494e12), f"NVIDIA H100 {_SHEET} (SXM)"),
    Card(r"NVIDIA H100 PCIe", _ampere(756e12, 51e12, 378e12), f"NVIDIA H100 {_SHEET} (PCIe)"),
    Card(r"NVIDIA H100 NVL", _ampere(835e12, 60e12, 417e12), f"NVIDIA H100 {_SHEET} (NVL)"),
    Card(r"NVIDIA H200", _ampere(989e12, 67e12, 494e12), f"NVIDIA H200 {_SHEET} (SXM)"),
    Card(r"NVIDIA H200 NVL", _ampere(835e12, 60e12, 417e12), f"NVIDIA H200 {_SHEET} (NVL)"),
    Card(
        r"(NVIDIA )?GH200 (120GB|480GB|144G HBM3e)",
        _ampere(989e12, 67e12, 494e12),
        "NVIDIA GH200 Grace Hopper Superchip data sheet",
    ),
    Card(
        r"NVIDIA B200",
        _ampere(2250e12, 80e12, 1100e12),
        "NVIDIA Blackwell Architecture Technical Brief (HGX B200)",
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
