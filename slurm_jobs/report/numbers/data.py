"""Results of preprocessing and consolidation. PURE.

They come from the `result` of each slice's completion record. The keys below are those of the
built-in stages; a missing key is reported as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.report.inputs.records import ReportInputs, StageInputs
from slurm_jobs.report.inputs.results import PREPROCESS_RUN
from slurm_jobs.report.model.run import DataNumbers
from slurm_jobs.report.model.statistics import DataStatistics, read_statistics
from slurm_jobs.report.model.values import Quantity, known, missing
from slurm_jobs.report.numbers.results import SliceResults

CONSOLIDATE_RUN = "consolidate"
_WORK = ("decode", "store", "tokenise", "write")


def data_numbers(
    inputs: ReportInputs, results: Mapping[str, SliceResults]
) -> tuple[DataNumbers, ...]:
    """Return an entry for each stage that preprocesses; `results` are the valid ones, by stage."""
    return tuple(
        _one_stage(stage, inputs, results)
        for stage in inputs.stages
        if stage.run == PREPROCESS_RUN and not stage.is_former
    )


def _one_stage(
    stage: StageInputs, inputs: ReportInputs, by_stage: Mapping[str, SliceResults]
) -> DataNumbers:
    results = list(by_stage[stage.name].values())
    samples, tokens = _total(results, "num_samples"), _total(results, "num_tokens")
    lengths = _counts(results, "num_tokens_histogram")
    consolidated = _consolidated(stage, inputs, by_stage)
    return DataNumbers(
        stage=stage.name,
        num_slices_reported=len(results),
        num_slices=stage.num_slices,
        num_rows=_total(results, "num_rows"),
        num_samples=samples,
        num_rejects=_total(results, "num_rejected"),
        num_too_long=_total(results, "num_too_long"),
        num_truncated=_total(results, "num_truncated"),
        num_tokens=tokens,
        mean_tokens=_mean(tokens, samples),
        num_shards=_num_shards(consolidated),
        rejects=tuple(_counts(results, "rejects_by_reason").most_common()),
        length_counts=tuple(sorted((int(most), count) for most, count in lengths.items())),
        work_s={
            name: sum(result[f"{name}_s"] for result in results)
            for name in _WORK
            if results and all(f"{name}_s" in result for result in results)
        },
        stored_image=_stored_image(results),
        statistics=_statistics(consolidated),
    )


def _stored_image(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the measured images; without `psnr_db` if no format was lossy."""
    measured = [result["stored_image"] for result in results if result.get("stored_image")]
    num_measured = sum(price["num_measured"] for price in measured)
    means = {}
    for name in ("bytes", "decode_ms", "psnr_db"):
        if measured and all(price[name] is not None for price in measured):
            total = sum(price["num_measured"] * price[name] for price in measured)
            means[name] = total / num_measured
    return means


def _counts(results: Sequence[Mapping[str, Any]], key: str) -> Counter[str]:
    """Return the sums by name of the counts that every slice gave under `key`."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update({str(name): int(count) for name, count in result.get(key, {}).items()})
    return counts


def _total(results: Sequence[Mapping[str, Any]], key: str) -> Quantity:
    if not results:
        return missing("count", "no slice has completed")
    values = [result[key] for result in results if isinstance(result.get(key), (int, float))]
    if len(values) < len(results):
        return missing("count", f"{len(results) - len(values)} slices did not return {key}")
    return known(sum(values), "count")


def _mean(tokens: Quantity, samples: Quantity) -> Quantity:
    if tokens.value is None or not samples.value:
        return missing("tokens/sample", tokens.missing or samples.missing or "no samples")
    return known(tokens.value / samples.value, "tokens/sample")


def _consolidated(
    stage: StageInputs, inputs: ReportInputs, by_stage: Mapping[str, SliceResults]
) -> Sequence[Mapping[str, Any]] | None:
    """Return the results of the stage that consolidates these parts; None if there is none."""
    for other in inputs.stages:
        if other.run == CONSOLIDATE_RUN and not other.is_former and stage.name in other.after:
            return list(by_stage[other.name].values())
    return None


def _num_shards(results: Sequence[Mapping[str, Any]] | None) -> Quantity:
    if results is None:
        return missing("count", "no stage consolidates these parts")
    return _total(results, "num_shards")


def _statistics(results: Sequence[Mapping[str, Any]] | None) -> DataStatistics | None:
    """Return the statistics. All tasks that finished the data set return the same."""
    found = (read_statistics(result.get("statistics")) for result in results or ())
    return next((one for one in found if one is not None), None)
