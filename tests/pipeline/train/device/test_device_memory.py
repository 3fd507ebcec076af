"""The memory of a GPU, read once a step."""

from __future__ import annotations

import torch

from pipeline.train.device.device_memory import read_device_memory


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
