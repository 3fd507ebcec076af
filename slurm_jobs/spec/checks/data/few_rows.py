"""Check that a manifest has enough rows for one step of the training that reads them. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.units import number_of
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.mixtures import expected_mixture
from slurm_jobs.spec.checks.data.usable_rows import usable_rows
from slurm_jobs.spec.checks.stages.phases import packs_rows, parts_of
from slurm_jobs.spec.graph import consolidate_of, preprocess_of
from slurm_jobs.spec.yaml.document import KeyPath

_ROUNDING = Fraction(3, 2)
"""Packed, a step has the multiple of `num_lanes` rows that is nearest to its share of the samples,
so it may need a third fewer samples than `global_batch_size`."""
_FEW_STEPS = 4
"""Packed, fewer steps than these may become none: samples fill rows, and rows fill a step."""


def few_row_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the trainings whose epochs have too few rows for one step.

    It is an error if that is certain, and a note if packing decides. Only manifests are judged of
    which `check` has read all rows.
    """
    trainings = [item for item in spec.configs.items() if spec.views[item[0]].run == "train"]
    for name, config in trainings:
        for number, part in enumerate(parts_of(config)):
            source = preprocess_of(spec.views, name, part.dataset)
            consolidate = consolidate_of(spec.views, name, part.dataset)
            if source is None or consolidate is None or part.num_steps is not None:
                continue
            mixture = expected_mixture(spec, source, consolidate)
            if mixture is None:
                continue
            place: KeyPath = ("stages", name, "config")
            if config.phases:
                place = (*place, "phases", number)
            unit = "row" if len(mixture) == 1 else "sample"
            counted = number_of(unit, sum(mixture.values()))
            held_out = spec.configs[source].held_out
            if held_out is not None:
                num_all = sum(map(len, (usable_rows(spec, source) or {}).values()))
                counted += f", which held_out.share {held_out.share:g} leaves of {num_all:,},"
            found = _finding(spec, place, part, sum(mixture.values()), counted)
            if found is not None:
                yield found


def _finding(
    spec: CheckedSpec, place: KeyPath, part: Any, num_rows: int, counted: str
) -> tuple[Problem, bool] | None:
    num_samples = Fraction(str(part.num_epochs)) * num_rows
    batch = part.global_batch_size
    is_packed = packs_rows(part)
    is_error = num_samples * (_ROUNDING if is_packed else 1) < batch
    if not is_error and not (is_packed and num_samples < _FEW_STEPS * batch):
        return None
    epochs = f"{part.num_epochs:g} epoch{'' if part.num_epochs == 1 else 's'}"
    rows = f"{counted} in {epochs}"
    remedy = "set more epochs, num_steps, or a smaller global_batch_size"
    if is_error:
        message = f"{rows} do not fill one step of {batch} samples; {remedy}"
    else:
        message = (
            f"{rows}, packed, may not fill one step, and the training would then end before its "
            f"first; {remedy}, or `batching: {{kind: grouped}}`"
        )
    return spec.problem((*place, "num_epochs"), message), is_error
