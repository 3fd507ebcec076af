"""PyTorch compared with a node's GPUs and driver, and the environment variables of NCCL. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.site_facts import SpecFacts

_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""Minimum driver by CUDA's major version (NVIDIA, "CUDA Compatibility", minor versions)."""
_SLOW_IMPORT_S = 60.0
_DEBUGGING = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"})
_SLOWING = {
    "NCCL_P2P_DISABLE": "GPUs of a node talk over the host's memory",
    "NCCL_SHM_DISABLE": "ranks of a node talk over the network",
    "NCCL_IB_DISABLE": "InfiniBand is not used",
}


def torch_checks(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    """Check that the build of torch has code for the GPUs of a node, and fits its driver."""
    torch = node.torch
    grade = Check.problem if spec.trains else Check.warning
    if torch.problem:
        if spec.trains or spec.gpus_per_node:
            remedy = (
                f"{node.executable} -m pip install '.[train]' in slurm-jobs' checkout, or another "
                "`python:`"
            )
            yield grade("torch", torch.problem, remedy)
        return
    if torch.import_s is not None and torch.import_s > _SLOW_IMPORT_S:
        finding = f"importing torch took {units.seconds(torch.import_s)} on one node alone"
        remedy = "put the environment on a faster file system, or pack it into one image"
        yield Check.warning("torch-import", finding, remedy)
    if not spec.gpus_per_node:
        yield Check.ok("torch", f"torch {torch.version}; no GPU is requested, so none was compared")
        return
    names = Counter(f"{c.name} (compute capability {c.capability})" for c in torch.cards)
    cards = ", ".join(f"{number} x {name}" for name, number in names.items())
    problems = dict.fromkeys(card.problem for card in torch.cards if card.problem)
    if problems:
        for problem in problems:
            yield Check.problem("torch", problem, "see above")
    elif not torch.cards:
        smi = f"nvidia-smi shows {', '.join(node.gpus)}" if node.gpus else node.gpus_reason
        reason = torch.cuda_problem or "no reason"
        remedy = "a build of torch for CUDA in the stage's Python (pytorch.org/get-started)"
        if torch.cuda:
            remedy = f"srun -N1 --gpus-per-node={spec.gpus_per_node} nvidia-smi"
        yield grade("torch", f"torch {torch.version} sees no GPU ({reason}); {smi}", remedy)
    elif len(torch.cards) < spec.gpus_per_node:
        counts = f"{len(torch.cards)} GPUs are visible, {spec.gpus_per_node} were requested"
        yield Check.problem("torch", f"{counts}: {cards}", "nvidia-smi -L")
    else:
        yield Check.ok("torch", f"torch {torch.version} has code for {cards}")
    yield from _driver_and_nccl(node)


def _driver_and_nccl(node: NodeFacts) -> Iterator[Check]:
    cuda, nccl = node.torch.cuda, node.torch.nccl
    if cuda:
        name, major = "cuda-driver", re.match(r"(\d+)", node.driver)
        least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
        if major is None or least is None:
            finding = f"driver `{node.driver or 'unknown'}` with a build for CUDA {cuda}"
            yield Check.unknown(name, finding)
        elif int(major[1]) < least:
            finding = (
                f"driver {node.driver} is too old for a build for CUDA {cuda} ({least} or newer)"
            )
            remedy = (
                "a build for an older CUDA: pip install torch --index-url "
                "https://download.pytorch.org/whl/cu126"
            )
            yield Check.problem(name, finding, remedy)
        else:
            yield Check.ok(name, f"driver {node.driver} is new enough for CUDA {cuda} ({least})")
        if not nccl:
            finding = "this build of torch has no NCCL: several GPUs cannot work together"
            remedy = "install PyTorch's own build (pytorch.org/get-started)"
            yield Check.problem("nccl", finding, remedy)
    if nccl:
        variables = {k: v for k, v in node.environment.items() if k.startswith("NCCL_")}
        pairs = [f"{k}={v}" for k, v in variables.items() if k not in _DEBUGGING]
        finding = f"NCCL {nccl}; set: {', '.join(pairs) or 'nothing'}"
        slowing = [
            f"{k}: {_SLOWING[k]}"
            for k, v in variables.items()
            if k in _SLOWING and v not in {"", "0"}
        ]
        if slowing:
            remedy = "remove it from `environment:` and `setup:` unless the site recommends it"
            yield Check.warning("nccl", f"{finding} ({'; '.join(slowing)})", remedy)
        else:
            yield Check.ok("nccl", finding)
