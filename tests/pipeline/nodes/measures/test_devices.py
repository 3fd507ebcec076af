"""Matrix products and transfers on this machine, which may have no GPU."""

from __future__ import annotations

import pytest
import torch

from pipeline.nodes.measures.devices import measure_matmul, measure_transfers
from pipeline.nodes.measures.measurement import Deadline
from pipeline.train.device.precision import native_precisions


def test_the_processor_multiplies_matrices_at_a_measured_rate() -> None:
    found = measure_matmul(1, Deadline.after(0.2), side=128)
    assert found.numbers["matmul_fp32_flops_per_s"] > 1e7
    assert found.details["matmul"]["side"] == 128


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_transfers_say_so() -> None:
    assert "no GPU" in measure_transfers(Deadline.after(1)).reasons["host_to_device"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_pinned_and_pageable_memory_are_copied_to_a_gpu() -> None:
    found = measure_transfers(Deadline.after(1), num_bytes=2**24)
    assert min(found.numbers.values()) > 1e8


def test_the_precisions_are_those_that_a_card_has() -> None:
    assert native_precisions(None) == ("fp32",)
    assert native_precisions((6, 1)) == ("fp32",)
    assert native_precisions((7, 0)) == ("fp32", "fp16")
    assert native_precisions((8, 0)) == ("fp32", "fp16", "bf16")
