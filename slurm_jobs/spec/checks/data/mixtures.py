"""Check of the shares of several manifests, and the data set that they make. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.units import number_of, percent
from slurm_jobs.formats.configs.proportions import Proportion, mixed_counts, proportion_problems
from slurm_jobs.formats.configs.stages import ConsolidateConfig, PreprocessConfig
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.data.expected_rows import expected_trained
from slurm_jobs.spec.checks.data.usable_rows import usable_rows
from slurm_jobs.spec.graph import consolidates_of
from slurm_jobs.spec.yaml.document import KeyPath


def mixture_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield shares in `consolidate` of unknown manifests, and those that contradict others."""
    for name, config in spec.configs.items():
        if not isinstance(config, PreprocessConfig):
            continue
        for consolidate in consolidates_of(spec.views, name):
            place: KeyPath = ("stages", consolidate, "config", "mixture")
            given = _mixture_of(spec.configs.get(consolidate))
            labels = [entry.label for entry in config.manifests]
            unknown = [label for label in given if label not in labels]
            for label in unknown:
                message = (
                    f"the manifest of `{name}` is not a list, so it has no shares"
                    if isinstance(config.manifest, str)
                    else f"`{name}` has no manifest `{label}`{did_you_mean(label, labels)} "
                    f"(it has: {', '.join(labels)})"
                )
                yield spec.problem((*place, label), message, at_key=True)
            if given and not unknown:
                for message in proportion_problems(_proportions(config, given)):
                    yield spec.problem(place, message, at_key=True)


def mixture_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the samples of each manifest in a data set of several, if all rows were read."""
    values = spec.document.value
    if isinstance(values, Mapping) and values.get("limit") is not None:
        return
    for name, config in spec.configs.items():
        if not isinstance(config, PreprocessConfig) or isinstance(config.manifest, str):
            continue
        for consolidate in consolidates_of(spec.views, name):
            mixture = expected_mixture(spec, name, consolidate)
            total = 0 if mixture is None else sum(mixture.values())
            if mixture is None or not total:
                continue
            shares = ", ".join(
                f"{label} {num:,} ({percent(num / total)})" for label, num in mixture.items()
            )
            message = (
                f"if every row becomes a sample, `{consolidate}` writes "
                f"{number_of('sample', total)}: {shares}"
            )
            yield spec.problem(("stages", name, "config", "manifest"), message, at_key=True)


def expected_mixture(spec: CheckedSpec, preprocess: str, consolidate: str) -> dict[str, int] | None:
    """Return the samples of each manifest in a data set if every usable row becomes one.

    With `held_out`, of those that it leaves on average. None unless `check` has read all rows.
    """
    config = spec.configs.get(preprocess)
    by_manifest = usable_rows(spec, preprocess)
    if not isinstance(config, PreprocessConfig) or by_manifest is None:
        return None
    share = 0.0 if config.held_out is None else config.held_out.share
    available = [math.floor(expected_trained(rows, share)) for rows in by_manifest.values()]
    proportions = _proportions(config, _mixture_of(spec.configs.get(consolidate)))
    if any(proportion_problems(proportions)):
        return None
    counts = mixed_counts(available, list(proportions.values()))
    return dict(zip(proportions, counts, strict=True))


def _proportions(
    config: PreprocessConfig, given: Mapping[str, Proportion]
) -> dict[str, Proportion]:
    return {entry.label: given.get(entry.label, entry) for entry in config.manifests}


def _mixture_of(consolidate: object) -> Mapping[str, Proportion]:
    return (consolidate.mixture or {}) if isinstance(consolidate, ConsolidateConfig) else {}
