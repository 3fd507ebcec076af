"""The precision of a training follows the card."""

from __future__ import annotations

import pytest

from pipeline.train.device.precision import choose_precision
from slurm_jobs.base.errors import StageConfigError


@pytest.mark.parametrize(
    ("asked", "capability", "given"),
    [
        ("auto", None, "fp32"),
        ("auto", (6, 1), "fp32"),
        ("auto", (7, 0), "fp16"),
        ("auto", (7, 5), "fp16"),
        ("auto", (8, 0), "bf16"),
        ("bf16", None, "bf16"),
        ("fp16", None, "fp16"),
        ("fp16", (9, 0), "fp16"),
        ("fp32", (9, 0), "fp32"),
    ],
)
def test_precision_follows_the_card(asked, capability, given):
    assert choose_precision(asked, capability) == given


def test_bf16_on_a_v100_is_refused():
    with pytest.raises(StageConfigError, match=r"capability 7\.0.*precision: fp16"):
        choose_precision("bf16", (7, 0))
