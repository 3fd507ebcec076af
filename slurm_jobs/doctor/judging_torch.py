"""PyTorch compared with a node's GPUs and driver, and the environment variables of NCCL. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from slurm_jobs.common.doctor_records import NodeFacts
from slurm_jobs.doctor.model import Check, SpecFacts, Standing
from slurm_jobs.report import words

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
    """Check the build, the GPUs, the driver and NCCL."""
    torch = node.torch
    if torch.problem:
        if spec.trains or spec.gpus_per_node:
            yield Check(
                name="torch",
                standing="problem" if spec.trains else "warning",
                told=torch.problem,
                remedy=f"{node.executable} -m pip install '.[train]' in slurm-jobs' checkout, or "
                "another `python:`",
            )
        return
    yield from _import(node)
    if spec.gpus_per_node:
        yield from _cards(node, spec)
        yield from _driver(node)
        yield from _nccl(node)
    else:
        finding = f"torch {torch.version}; no GPU is requested, so none was compared"
        yield Check(name="torch", standing="ok", told=finding)


def _import(node: NodeFacts) -> Iterator[Check]:
    import_s = node.torch.import_s
    if import_s is not None and import_s > _SLOW_IMPORT_S:
        yield Check(
            name="torch-import",
            standing="warning",
            told=f"importing torch took {words.seconds(import_s)} on one node alone",
            remedy="put the environment on a faster file system, or pack it into one image",
        )


def _cards(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    torch = node.torch
    for problem in dict.fromkeys(card.problem for card in torch.cards if card.problem):
        yield Check(name="torch", standing="problem", told=problem, remedy="see above")
    if any(card.problem for card in torch.cards):
        return
    if not torch.cards:
        seen = f"nvidia-smi shows {', '.join(node.gpus)}" if node.gpus else node.gpus_reason
        finding = f"torch {torch.version} sees no GPU ({torch.cuda_problem or 'no reason'}); {seen}"
        remedy = "a build of torch for CUDA in the stage's Python (pytorch.org/get-started)"
        if torch.cuda:
            remedy = f"srun -N1 --gpus-per-node={spec.gpus_per_node} nvidia-smi"
        standing: Standing = "problem" if spec.trains else "warning"
        yield Check(name="torch", standing=standing, told=finding, remedy=remedy)
        return
    names = Counter(f"{c.name} (compute capability {c.capability})" for c in torch.cards)
    each = ", ".join(f"{number} x {name}" for name, number in names.items())
    if len(torch.cards) < spec.gpus_per_node:
        finding = (
            f"{len(torch.cards)} GPUs are visible, {spec.gpus_per_node} were requested: {each}"
        )
        yield Check(name="torch", standing="problem", told=finding, remedy="nvidia-smi -L")
        return
    yield Check(name="torch", standing="ok", told=f"torch {torch.version} has code for {each}")


def _driver(node: NodeFacts) -> Iterator[Check]:
    cuda = node.torch.cuda
    if not cuda:
        return
    name, major = "cuda-driver", re.match(r"(\d+)", node.driver)
    least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    if major is None or least is None:
        finding = f"driver `{node.driver or 'unknown'}` with a build for CUDA {cuda}"
        yield Check(name=name, standing="unknown", told=finding)
    elif int(major[1]) < least:
        yield Check(
            name=name,
            standing="problem",
            told=f"driver {node.driver} is too old for a build for CUDA {cuda} ({least} or newer)",
            remedy="a build for an older CUDA: pip install torch --index-url "
            "https://download.pytorch.org/whl/cu126",
        )
    else:
        finding = f"driver {node.driver} is new enough for CUDA {cuda} ({least})"
        yield Check(name=name, standing="ok", told=finding)


def _nccl(node: NodeFacts) -> Iterator[Check]:
    version, name = node.torch.nccl, "nccl"
    if not version:
        if node.torch.cuda:
            finding = "this build of torch has no NCCL: several GPUs cannot work together"
            remedy = "install PyTorch's own build (pytorch.org/get-started)"
            yield Check(name=name, standing="problem", told=finding, remedy=remedy)
        return
    own = {k: v for k, v in node.environment.items() if k.startswith("NCCL_")}
    finding = f"NCCL {version}; set: {_listed(own)}"
    slowing = [f"{k}: {_SLOWING[k]}" for k in own if k in _SLOWING and own[k] not in {"", "0"}]
    if slowing:
        remedy = "remove it from `environment:` and `setup:` unless the site recommends it"
        yield Check(
            name=name, standing="warning", told=f"{finding} ({'; '.join(slowing)})", remedy=remedy
        )
        return
    yield Check(name=name, standing="ok", told=finding)


def _listed(own: dict[str, str]) -> str:
    return ", ".join(f"{k}={v}" for k, v in own.items() if k not in _DEBUGGING) or "nothing"
