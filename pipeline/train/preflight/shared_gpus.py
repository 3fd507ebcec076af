"""Check that no two ranks of a training compute on one GPU. PURE.

NCCL refuses two ranks on one card with `Duplicate GPU detected`, because it cannot plan its
transfers (github.com/NVIDIA/nccl/issues/418). The slices of a card that is divided by MIG count as
that card (github.com/NVIDIA/nccl/issues/1716). A process sees only the first of several slices
(NVIDIA, "MIG User Guide", CUDA Device Enumeration), so ranks that see all of a node's slices
compute on the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.train.device.device_facts import DeviceFacts
from slurm_jobs.base.index_ranges import ranges_text


def shared_gpu_problems(nodes: Sequence[str], devices: Sequence[DeviceFacts]) -> list[str]:
    """Return which ranks share a GPU, and the remedy; `nodes` and `devices` are by rank."""
    of_gpu: dict[str, list[int]] = {}
    of_card: dict[str, list[int]] = {}
    for rank, device in enumerate(devices):
        if device.uuid:
            of_gpu.setdefault(device.uuid, []).append(rank)
        if device.uuid and device.pci_address:
            of_card.setdefault(f"{nodes[rank]} {device.pci_address}", []).append(rank)
    problems = [
        f"{_where(ranks, nodes)} would compute on one GPU ({devices[ranks[0]].name}, UUID {uuid}), "
        "and each rank of a training needs a GPU of its own: request as many GPUs as ranks "
        "(resources.gpus_per_node and tasks_per_node). If there are as many, the ranks do not see "
        "the same GPUs in the same order, so remove what sets CUDA_VISIBLE_DEVICES for each rank"
        for uuid, ranks in of_gpu.items()
        if len(ranks) > 1
    ]
    for ranks in of_card.values():
        uuids = {devices[rank].uuid for rank in ranks}
        if len(uuids) > 1:
            problems.append(
                f"{_where(ranks, nodes)} would compute on slices of one card "
                f"({devices[ranks[0]].name}), and NCCL connects whole cards only: request whole "
                "cards (resources.gpu), or one slice per node with tasks_per_node: 1"
            )
    return problems


def _where(ranks: Sequence[int], nodes: Sequence[str]) -> str:
    return f"ranks {ranges_text(ranks)} ({', '.join(dict.fromkeys(nodes[r] for r in ranks))})"
