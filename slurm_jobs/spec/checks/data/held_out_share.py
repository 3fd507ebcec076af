"""Check that the share of a stage that holds out rows is large enough for one of them. PURE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from slurm_jobs.base.units import number_of
from slurm_jobs.formats.configs.stages import PreprocessConfig
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.expected_rows import expected_held_out, num_pictures
from slurm_jobs.spec.checks.data.usable_rows import usable_rows


def held_out_share_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the shares that probably hold out no row of a manifest that was read to its end."""
    values = spec.document.value
    if isinstance(values, Mapping) and values.get("limit") is not None:
        return  # an attempt with the first rows alone, which evaluates nothing if none is held out
    for name, config in spec.configs.items():
        if not isinstance(config, PreprocessConfig) or config.held_out is None:
            continue
        by_manifest = usable_rows(spec, name) or {}
        rows = list(itertools.chain.from_iterable(by_manifest.values()))
        share = config.held_out.share
        if not rows or expected_held_out(rows, share) >= 1:
            continue
        several = ""
        if any(num_pictures(row) > 1 for row in rows):
            several = "; a row with several pictures is held out only if all of them are"
        message = (
            f"{share:g} of {number_of('row', len(rows))} holds out "
            f"{expected_held_out(rows, share):.2g} rows on average, so probably none{several}. "
            "Raise it, or give other rows as `evaluate.manifest` of the training"
        )
        yield spec.problem(("stages", name, "config", "held_out", "share"), message), True
