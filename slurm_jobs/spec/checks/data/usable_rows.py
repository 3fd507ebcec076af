"""Rows of a stage's manifests that may become samples, if `check` has read all rows. PURE."""

from __future__ import annotations

from slurm_jobs.formats.configs.stages import PreprocessConfig
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.data.manifests import (
    has_all_rows,
    named_rows,
    row_options,
    row_problem,
)
from slurm_jobs.spec.graph import may_be_made


def usable_rows(spec: CheckedSpec, preprocess: str) -> dict[str, list[ManifestRow]] | None:
    """Return the rows by the name of their manifest; None unless all were read."""
    config = spec.configs.get(preprocess)
    items = named_rows(spec, preprocess)
    if not isinstance(config, PreprocessConfig) or len(items) != len(config.manifests):
        return None
    if may_be_made(spec, preprocess):
        return None
    usable: dict[str, list[ManifestRow]] = {}
    for entry, item in zip(config.manifests, items, strict=True):
        rows = spec.files.first_rows(item.resolved, row_options(spec, item.path))
        is_table = spec.files.table(item.resolved) is not None
        if not rows or is_table or not has_all_rows(item.resolved, rows, spec.files):
            return None
        usable[entry.label] = [row for row in rows if row_problem(row) is None]
    return usable
