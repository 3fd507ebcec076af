"""PyTorch compared with a node's GPUs and driver, and the environment variables of NCCL. PURE."""

from __future__ import annotations

import re
from collections import Counter

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.doctor_check import Judgement, Standing
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


def torch_import(node: NodeFacts, _spec: SpecFacts) -> Judgement | None:
    """Judge how long importing torch took; None if that is usual, or it failed."""
    import_s = node.torch.import_s
    if node.torch.problem or import_s is None or import_s <= _SLOW_IMPORT_S:
        return None
    finding = f"importing torch took {units.seconds(import_s)} on one node alone"
    remedy = "put the environment on a faster file system, or pack it into one image"
    return Judgement("warning", finding, remedy)


def torch_code(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    """Judge whether the build of torch has code for the GPUs of a node, and sees all of them."""
    torch = node.torch
    needed: Standing = "problem" if spec.trains else "warning"
    if torch.problem:
        if not spec.trains and not spec.gpus_per_node:
            return None
        remedy = (
            f"{node.executable} -m pip install '.[train]' in slurm-jobs' checkout, or another "
            "`python:`"
        )
        return Judgement(needed, torch.problem, remedy)
    if not spec.gpus_per_node:
        finding = f"torch {torch.version}; no GPU is requested, so none was compared"
        return Judgement("ok", finding)
    names = Counter(f"{c.name} (compute capability {c.capability})" for c in torch.cards)
    cards = ", ".join(f"{number} x {name}" for name, number in names.items())
    problems = dict.fromkeys(card.problem for card in torch.cards if card.problem)
    if problems:
        return Judgement("problem", "; ".join(problems), "see above")
    if not torch.cards:
        smi = f"nvidia-smi shows {', '.join(node.gpus)}" if node.gpus else node.gpus_reason
        reason = torch.cuda_problem or "no reason"
        remedy = "a build of torch for CUDA in the stage's Python (pytorch.org/get-started)"
        if torch.cuda:
            remedy = f"srun -N1 --gpus-per-node={spec.gpus_per_node} nvidia-smi"
        return Judgement(needed, f"torch {torch.version} sees no GPU ({reason}); {smi}", remedy)
    if len(torch.cards) < spec.gpus_per_node:
        counts = f"{len(torch.cards)} GPUs are visible, {spec.gpus_per_node} were requested"
        return Judgement("problem", f"{counts}: {cards}", "nvidia-smi -L")
    return Judgement("ok", f"torch {torch.version} has code for {cards}")


def cuda_driver(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    """Judge whether the driver is new enough for the build of torch."""
    cuda = node.torch.cuda
    if not spec.gpus_per_node or not cuda:
        return None
    major = re.match(r"(\d+)", node.driver)
    least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    if major is None or least is None:
        finding = f"driver `{node.driver or 'unknown'}` with a build for CUDA {cuda}"
        return Judgement("unknown", finding)
    if int(major[1]) >= least:
        return Judgement("ok", f"driver {node.driver} is new enough for CUDA {cuda} ({least})")
    finding = f"driver {node.driver} is too old for a build for CUDA {cuda} ({least} or newer)"
    remedy = (
        "a build for an older CUDA: pip install torch --index-url "
        "https://download.pytorch.org/whl/cu126"
    )
    return Judgement("problem", finding, remedy)


def nccl(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    """Judge whether torch has NCCL, and the environment variables that make it slow."""
    if not spec.gpus_per_node or not (node.torch.cuda or node.torch.nccl):
        return None
    if not node.torch.nccl:
        finding = "this build of torch has no NCCL: several GPUs cannot work together"
        return Judgement(
            "problem", finding, "install PyTorch's own build (pytorch.org/get-started)"
        )
    variables = {k: v for k, v in node.environment.items() if k.startswith("NCCL_")}
    pairs = [f"{k}={v}" for k, v in variables.items() if k not in _DEBUGGING]
    finding = f"NCCL {node.torch.nccl}; set: {', '.join(pairs) or 'nothing'}"
    slowing = [
        f"{k}: {effect}" for k, effect in _SLOWING.items() if variables.get(k, "") not in {"", "0"}
    ]
    if not slowing:
        return Judgement("ok", finding)
    remedy = "remove it from `environment:` and `setup:` unless the site recommends it"
    return Judgement("warning", f"{finding} ({'; '.join(slowing)})", remedy)
