"""Precision, threads and cores of a rank, and accelerate's file as it finds it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pipeline.train.accelerate_settings import asked_precision, read_accelerate_file
from pipeline.train.device import numa_cores
from pipeline.train.device.device_memory import read_device_memory
from pipeline.train.device.numa_cores import cores_near, far_text, near_cores
from pipeline.train.device.precision import choose_precision
from pipeline.train.device.rank_device import threads_per_rank
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import AccelerateConfig


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


ALONE = SimpleNamespace(rank=0, num_ranks=1, from_main=lambda text: text)
TWO = SimpleNamespace(rank=1, num_ranks=2, from_main=lambda text: text)


def config_of(path, **changes):
    values = {"num_steps": 1, "strategy": "accelerate", **changes}
    return TrainConfig(accelerate=AccelerateConfig(config=str(path)), **values)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("{distributed_type: MULTI_GPU, mixed_precision: fp16}")
    return path


def test_the_file_says_the_precision_where_the_config_leaves_it_open(file):
    assert asked_precision(config_of(file)) == "fp16"
    assert asked_precision(config_of(file, precision="bf16")) == "bf16"
    assert asked_precision(TrainConfig(num_steps=1)) == "auto"
    file.write_text("distributed_type: MULTI_GPU")
    assert asked_precision(config_of(file)) == "fp32"


def test_a_file_that_has_come_to_contradict_the_stage_is_an_error(file):
    assert read_accelerate_file(config_of(file), TWO, num_nodes=1).precision == "fp16"
    with pytest.raises(StageConfigError, match=r"file\.yaml: distributed_type is MULTI_GPU, which"):
        read_accelerate_file(config_of(file), ALONE, num_nodes=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "not valid YAML"),
        ("[1]", "no keys and values"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(file, text, words):
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(StageConfigError, match=rf"file\.yaml: .*{words}"):
        read_accelerate_file(config_of(file), TWO, num_nodes=1)


def test_a_rank_that_reads_another_file_than_rank_0_is_named(file):
    behind = SimpleNamespace(rank=1, num_ranks=2, from_main=lambda _: "distributed_type: FSDP")
    with pytest.raises(StageError, match="rank 1 reads other content than rank 0"):
        read_accelerate_file(config_of(file), behind, num_nodes=1)


def test_a_training_without_such_a_file_has_none():
    assert read_accelerate_file(TrainConfig(num_steps=1), TWO, num_nodes=1) is None
