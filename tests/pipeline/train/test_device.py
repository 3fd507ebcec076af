"""Precision and threads."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipeline.train import device
from pipeline.train.device import (
    choose_precision,
    cores_near,
    far_text,
    near_cores,
    read_device_memory,
    threads_per_rank,
)
from slurm_jobs.shared.errors import StageConfigError


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


def test_threads_are_what_slurm_gave_else_a_share_of_the_node():
    assert threads_per_rank("3", num_cpus=64, num_local_ranks=4) == 3
    assert threads_per_rank(None, num_cpus=64, num_local_ranks=4) == 16
    assert threads_per_rank(None, num_cpus=2, num_local_ranks=4) == 1


def test_memory_of_a_gpu_is_one_query_a_step(monkeypatch):
    queries = []

    def answer(device):
        queries.append(device)
        return {"allocated_bytes": {"all": {"peak": 5e9, "current": 1}}, "num_alloc_retries": 2}

    # Where the functions of `torch.cuda` that read the allocator all end.
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", answer, raising=False)
    assert read_device_memory(torch.device("cuda", 1)) == (5e9, 2)
    assert queries == [1]


@pytest.mark.parametrize(
    ("pci", "address"),
    [((1, 0x3B, 0), "0001:3b:00.0"), ((0, 0xC1, 2), "0000:c1:02.0"), ((0, -1, 0), "")],
)
def test_the_cores_near_a_gpu_are_those_of_its_pci_address(
    monkeypatch: pytest.MonkeyPatch, pci: tuple[int, int, int], address: str
) -> None:
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    properties = SimpleNamespace(**dict(zip(names, pci, strict=True)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    asked: list[str] = []
    monkeypatch.setattr(device, "cores_near", lambda name: asked.append(name) or (4, 5))
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
def test_a_rank_far_from_its_gpu_says_so(
    tmp_path: Path, cores: range, cpulist: str | None, words: str
) -> None:
    if cpulist is not None:
        folder = tmp_path / "0000:3b:00.0"
        folder.mkdir()
        (folder / "local_cpulist").write_text(cpulist)
    text = far_text(cores, cores_near("0000:3b:00.0", tmp_path))
    assert text == "" if not words else words in text
