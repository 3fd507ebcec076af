"""Check that a sample of a manifest's rows has pictures, unless text alone is meant. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_jobs.formats.configs.stages import ConsolidateConfig, PreprocessConfig
from slurm_jobs.formats.manifests.text_rows import first_text_row, text_alone, text_so_far
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.manifests import (
    has_all_rows,
    is_listed,
    named_rows,
    row_options,
    row_problem,
)
from slurm_jobs.spec.graph import consolidates_of, may_be_made, preprocess_of

_UNREAD = (
    ". Each of these rows has a key that is not read and may be the picture; if none is, name "
    "them in `columns.ignore`"
)


def text_alone_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests without a picture in their first rows.

    It is an error for `preprocess` if these are all rows, or if each has a key that is not read,
    unless `text_only` accepts it or an earlier stage may write the manifest. Otherwise it is a
    note, because `consolidate` decides. It is also a note for held-out rows, which are not
    learned, and for commands that submit nothing. One of several manifests may be without pictures
    if another has some.
    """
    for item in named_rows(spec):
        stage = str(item.path[1])
        is_learned = isinstance(spec.configs.get(stage), PreprocessConfig)
        if any(_is_text_meant(spec, name) for name in _sources(spec, stage)):
            continue
        rows = spec.files.first_rows(item.resolved, row_options(spec, item.path))
        usable = [row for row in rows if not row_problem(row)]
        first = first_text_row(usable)
        if first is None or (is_listed(item.path) and _has_pictures(spec, stage)):
            continue
        subject = f"none of the first {len(usable):,} rows has"
        if len(usable) == 1:
            subject = "the first row does not have"
        # The first rows of a table end after a number of bytes that its size does not determine.
        is_table = spec.files.table(item.resolved) is not None
        is_whole = not is_table and has_all_rows(item.resolved, rows, spec.files)
        is_fixed = is_learned and not may_be_made(spec, stage)
        has_unread = all(row.ignored for row in usable)
        if is_fixed and is_whole:
            message = text_alone(subject, first)
        else:
            message = text_so_far(subject, first, is_learned=is_learned)
            message += _UNREAD if is_fixed and has_unread else ""
        is_error = is_fixed and (is_whole or has_unread) and spec.files.needs_images
        yield spec.problem(item.path, f"{item.resolved}: {message}"), is_error


def _has_pictures(spec: CheckedSpec, stage: str) -> bool:
    """Check whether a first row of any manifest of a stage has a picture."""
    return any(
        row.images
        for item in named_rows(spec, stage)
        for row in spec.files.first_rows(item.resolved, row_options(spec, item.path))
    )


def _sources(spec: CheckedSpec, stage: str) -> list[str]:
    """Return the stage itself, or the `preprocess` stages whose samples a training may read."""
    making = [name for name, c in spec.configs.items() if isinstance(c, PreprocessConfig)]
    if stage in making:
        return [stage]
    dataset = (spec.views[stage].config or {}).get("dataset")
    source = preprocess_of(spec.views, stage, dataset)
    return making if source is None else [source]


def _is_text_meant(spec: CheckedSpec, preprocess: str) -> bool:
    """Check whether every data set of a `preprocess` stage's samples may be without pictures."""
    config = spec.configs.get(preprocess)
    own = isinstance(config, PreprocessConfig) and config.text_only
    verdicts = []
    for name in consolidates_of(spec.views, preprocess):
        merging = spec.configs.get(name)
        if isinstance(merging, ConsolidateConfig) and merging.text_only is not None:
            verdicts.append(merging.text_only)
        else:
            verdicts.append(own)
    return all(verdicts) if verdicts else own
