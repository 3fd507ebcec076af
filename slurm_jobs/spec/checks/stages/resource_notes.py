"""Notes on resources that a stage does not use, or gets differently from Slurm.

They are noted, not refused: a partition may give no node without a GPU, and `--set` may try a
shorter time limit. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.records.job_resources import lead_within
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.model import RunSpec


def resource_notes(spec: CheckedSpec, valid: RunSpec) -> Iterator[Problem]:
    """Yield a note for each such key of a stage's resources, at its place."""
    for name, stage in valid.stages.items():
        place, resources = ("stages", name, "resources"), stage.resources
        if stage.run == "train" and spec.configs[name].device == "cpu" and resources.gpus_per_node:
            message = (
                f"`{resources.gpus_per_node}` only keeps GPUs from others, because the "
                "config says `device: cpu`; set `device: cuda`, or leave it out"
            )
            yield spec.problem((*place, "gpus_per_node"), message)
        timeout_min = resources.timeout_min * (stage.array.slices_per_task if stage.array else 1)
        lead_s = lead_within(timeout_min, resources.signal_lead_s)
        if "signal_lead_s" in resources.model_fields_set and lead_s < resources.signal_lead_s:
            message = (
                f"it can be at most half of the time limit ({timeout_min:g} min): the ranks are "
                f"asked to stop {lead_s} s before its end, not `{resources.signal_lead_s}`; give "
                f"{lead_s} or less, or raise timeout_min"
            )
            yield spec.problem((*place, "signal_lead_s"), message)
