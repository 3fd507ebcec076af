"""Matrix products on this machine; cards through what their tools print, as there may be none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pipeline.nodes.devices import measure_matmul, measure_transfers
from pipeline.nodes.measures import (
    Deadline,
    find_gpus,
    links_text,
    measure_links,
    read_links,
    repeated,
)
from pipeline.train.device import native_precisions

# What nvidia-smi prints on a node with four A100 in pairs; a stand-in, as there is none here.
TOPOLOGY = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPXB\t0-31\t0
GPU1\tNV12\t X \tSYS\tSYS\tPXB\t0-31\t0
GPU2\tSYS\tSYS\t X \tNV12\tSYS\t32-63\t1
GPU3\tSYS\tSYS\tNV12\t X \tSYS\t32-63\t1
NIC0\tPXB\tPXB\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""


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


def test_links_between_cards_are_read_once_for_each_pair() -> None:
    links = read_links(TOPOLOGY)
    assert [(link["a"], link["b"]) for link in links] == [
        *(("GPU0", other) for other in ("GPU1", "GPU2", "GPU3")),
        *(("GPU1", other) for other in ("GPU2", "GPU3")),
        ("GPU2", "GPU3"),
    ]
    assert links_text(links) == "2 x NV12, 4 x SYS"
    assert links_text(read_links("no devices")) == ""


def _nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A stand-in for nvidia-smi on PATH."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus_are_named_as_nvidia_smi_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nvidia_smi(
        tmp_path,
        monkeypatch,
        'case "$1" in topo) echo "nothing";; *) echo "0, NVIDIA A100-SXM4-40GB, 535.1";; esac',
    )
    names, found = find_gpus()
    assert names == ("NVIDIA A100-SXM4-40GB",)
    assert found.details["gpu"]["drivers"] == ["535.1"]


def test_a_driver_that_does_not_answer_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nvidia_smi(tmp_path, monkeypatch, 'echo "NVML: Driver mismatch" >&2; exit 18')
    names, found = find_gpus()
    assert names == ()
    assert "Driver mismatch" in found.reasons["gpu"]


def _interface(sys: Path, name: str, speed: str, state: str) -> None:
    folder = sys / "class/net" / name
    (folder / "device").mkdir(parents=True)
    (folder / "speed").write_text(speed)
    (folder / "operstate").write_text(state)


def test_the_fastest_link_that_is_up_counts(tmp_path: Path) -> None:
    _interface(tmp_path, "eth0", "25000\n", "up\n")
    _interface(tmp_path, "eth1", "100000\n", "down\n")
    _interface(tmp_path, "eth2", "-1\n", "up\n")
    assert measure_links(tmp_path).numbers == {"link_bits_per_s": 25e9}
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "state").write_text("4: ACTIVE\n")
    assert measure_links(tmp_path).numbers == {"link_bits_per_s": 200e9}


def test_interfaces_that_say_no_speed_are_the_reason(tmp_path: Path) -> None:
    _interface(tmp_path, "veth0", "-1\n", "up\n")
    assert "veth0" in measure_links(tmp_path).reasons["link"]
    assert "cannot be read" in measure_links(tmp_path / "no").reasons["link"]


def test_repeats_end_with_their_time_and_have_a_least_number() -> None:
    assert len(repeated(lambda: 1.0, Deadline.after(-1), most=9)) == 3
    assert len(repeated(lambda: 1.0, Deadline.after(60), most=9)) == 9
