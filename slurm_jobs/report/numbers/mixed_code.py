"""Stages whose complete slices were made by different copies of the code. PURE."""

from __future__ import annotations

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.report.inputs.run_inputs import ReportInputs
from slurm_jobs.run_folder.ledger import latest_intents

_SHOWN_CHARS = 8
"""Characters of a snapshot's name that tell the few of a run apart."""


def mixed_code_notes(inputs: ReportInputs) -> list[str]:
    """Return which slices each copy of the code made, for stages with several.

    Copies are named as the folders in the run's `code/`.
    """
    notes: list[str] = []
    for stage in inputs.stages:
        completed = [c for c in stage.completions if c.outcome == "completed"]
        tokens = {(c.slice_index, c.token) for c in completed}
        by_code: dict[str, list[int]] = {}
        for index, intent in latest_intents(inputs.intents or (), stage.name).items():
            if intent.code and (index, intent.token) in tokens:
                by_code.setdefault(intent.code, []).append(index)
        if len(by_code) > 1:
            made = [
                f"{ranges_text(sorted(slices))} by code/{code[:_SHOWN_CHARS]}"
                for code, slices in by_code.items()
            ]
            notes.append(
                f"{stage.name}: {len(made)} copies of the code made the complete slices: "
                f"{', '.join(made)}"
            )
    return notes
