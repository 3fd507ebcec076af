"""Cores near a GPU, and ranks that are far from theirs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pipeline.train.device import numa_cores
from pipeline.train.device.numa_cores import cores_near, far_text, near_cores


@pytest.mark.parametrize(
    ("pci", "address"),
    [((1, 0x3B, 0), "0001:3b:00.0"), ((0, 0xC1, 2), "0000:c1:02.0"), ((0, -1, 0), "")],
)
def test_the_cores_near_a_gpu_are_those_of_its_pci_address(monkeypatch, pci, address):
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    properties = SimpleNamespace(**dict(zip(names, pci, strict=True)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    asked: list[str] = []
    monkeypatch.setattr(numa_cores, "cores_near", lambda name: asked.append(name) or (4, 5))
    assert near_cores(torch.device("cuda", 0)) == ((4, 5) if address else ())
    assert asked == ([address] if address else [])
    assert near_cores(torch.device("cpu")) == ()


@pytest.mark.parametrize(
    ("cores", "cpulist", "words"),
    [
        (range(8), "0-15,32-47\n", ""),
        (range(12, 20), "0-15\n", ""),
        (range(16, 24), "0-15\n", "runs on cores 16-23, but its GPU is near cores 0-15: "),
        (range(8), "\n", ""),
        (range(8), None, ""),
    ],
)
def test_a_rank_far_from_its_gpu_says_so(tmp_path, cores, cpulist, words):
    if cpulist is not None:
        folder = tmp_path / "0000:3b:00.0"
        folder.mkdir()
        (folder / "local_cpulist").write_text(cpulist)
    text = far_text(cores, cores_near("0000:3b:00.0", tmp_path))
    assert text == "" if not words else words in text
