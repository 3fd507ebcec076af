"""Rule on ranks whose cores are far from their GPU. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.rules.training.straggler import place_of
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.training_model import TrainingNumbers

_MOST_NAMED = 4
_NEARER_CORES = (
    "cores near the GPUs: request whole nodes with all cores (cpus_per_task, `slurm: {exclusive: "
    "true}`); or, for a part of a node, `slurm: {gres-flags: enforce-binding}`, if the site's "
    "gres.conf says which cores are near which GPU"
)
_OTHER_ORDER = (
    "GPUs in the order of their sockets, because other ranks have the cores near these: remove "
    "`distribution` under `slurm:`, or set CUDA_VISIBLE_DEVICES in `setup:`"
)


@rule(
    "far-from-gpu",
    "a rank has none of the cores of its GPU's NUMA node",
    "PyTorch, NUMA binding: typically 1 to 10 % of performance",
    gpus_only=True,
)
def far_from_gpu(numbers: TrainingNumbers) -> Finding | RuleOutcome:
    """Find ranks far from their GPU. gres.conf(5): only enforce-binding ties cores to GPUs."""
    far = numbers.far_ranks
    if far is None:
        return abstain(
            "no record says which cores are near the GPUs (older version, or no NUMA nodes)"
        )
    if not far:
        return clear("each rank has cores near its GPU")
    evidence = [
        f"{place_of(each.rank, each.node)} has cores {each.cores}, and its GPU is near cores "
        f"{each.near_cores}"
        for each in far[:_MOST_NAMED]
    ]
    if len(far) > _MOST_NAMED:
        evidence.append(f"and {units.number_of('more rank', len(far) - _MOST_NAMED)}")
    knobs = {_OTHER_ORDER if each.others_are_near else _NEARER_CORES: None for each in far}
    return Finding(
        title="1 rank runs far from its GPU"
        if len(far) == 1
        else f"{len(far)} ranks run far from their GPUs",
        text="Copies to this GPU and kernel launches cross to another NUMA node.",
        evidence=tuple(evidence),
        next_knob="; ".join(knobs),
        ceiling="typically 1 to 10 % (PyTorch's documentation); not known for this training",
        confidence="high that they are far; the cost is not timed separately",
    )
