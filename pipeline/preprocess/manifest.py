"""Manifests to rows: CSV, JSON lines, LLaVA's JSON, Parquet, and `datasets` saved to disk.

Rows are numbered over the whole manifest, so neither a row's key nor its part of the data set
depends on the slices. An invalid row stays in the list with its `problem`: one bad line of a
million is a reject, not a failure of the stage.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.preprocess.manifests.opening import open_manifest
from slurm_jobs.common.manifests.rows import ManifestRow
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.stage_config.preprocess import DEFAULT_PROMPT, KNOWN_COLUMNS, Columns


def slice_range(num_rows: int, slice_index: int, num_slices: int) -> range:
    """Return the rows of one slice; the slices cover every row once, with sizes within one."""
    start = slice_index * num_rows // num_slices
    return range(start, (slice_index + 1) * num_rows // num_slices)


def folder_of(manifest: Path) -> Path:
    """Return the default base folder of paths in a manifest: its own folder."""
    return manifest if manifest.is_dir() else manifest.parent


def read_manifest(
    path: Path,
    limit: int | None = None,
    *,
    prompt: str = DEFAULT_PROMPT,
    system_prompt: str = "",
    columns: Columns = KNOWN_COLUMNS,
) -> list[ManifestRow]:
    """Return the first `limit` rows of a manifest, or all; raises like `open_manifest`.

    `prompt`, `system_prompt` and `columns` are as in the config of `preprocess`.
    """
    options = RowOptions(prompt=prompt, system_prompt=system_prompt, columns=columns)
    manifest = open_manifest(path, limit=limit, options=options)
    return list(manifest.rows(range(manifest.num_rows)))
