"""GPUs of a node as nvidia-smi shows them, and the links between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.nodes.measures.gpu_links import find_gpus, links_text, read_links

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
