"""Check that a sample of a manifest's rows has pictures, unless text alone is meant. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_jobs.shared.configs.stages import ConsolidateConfig, PreprocessConfig
from slurm_jobs.shared.manifests.messages import ManifestRow
from slurm_jobs.shared.manifests.text_alone import first_text_row, text_alone
from slurm_jobs.spec.checks.manifests import MANIFESTS, row_options, row_problem
from slurm_jobs.spec.graph import CheckedSpec, Finding, may_be_made


def no_picture(rows: Sequence[ManifestRow]) -> str | None:
    """Return that no usable row of a sample has a picture; None if one has, or none is usable."""
    usable = [row for row in rows if not row_problem(row)]
    first = first_text_row(usable)
    if first is None:
        return None
    subject = f"none of the first {len(usable):,} rows has"
    if len(usable) == 1:
        subject = "the first row does not have"
    return text_alone(subject, first)


def text_alone_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests without a picture in their first rows.

    It is an error for `preprocess`, unless it or a `consolidate` has `text_only`, or an earlier
    stage may write the manifest. It is a note for held-out rows, which are not learned, and for
    commands that submit nothing.
    """
    configs = list(spec.configs.values())
    merging = [config for config in configs if isinstance(config, ConsolidateConfig)]
    making = [config for config in configs if isinstance(config, PreprocessConfig)]
    for item in spec.expanded:
        if item.path[2:] not in MANIFESTS or not item.given:
            continue
        stage = str(item.path[1])
        config = spec.configs.get(stage)
        is_learned = isinstance(config, PreprocessConfig)
        makers = [config] if is_learned else making
        if any(each.text_only for each in (*makers, *merging)):
            continue
        problem = no_picture(spec.files.first_rows(item.resolved, row_options(spec, item.path)))
        if problem is not None:
            is_error = is_learned and spec.files.needs_images and not may_be_made(spec, stage)
            yield spec.problem(item.path, f"{item.resolved}: {problem}"), is_error
