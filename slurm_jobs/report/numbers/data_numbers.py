"""Results of preprocessing and consolidation. PURE.

They come from the `result` of each slice's completion record. The keys below are those of the
built-in stages; a missing key is reported as missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.inputs.stage_results import PREPROCESS_RUN
from slurm_jobs.report.numbers.current_results import SliceResults
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.data_statistics import read_statistics
from slurm_jobs.report.values.mixed_manifests import read_mixture

CONSOLIDATE_RUN = "consolidate"
_MOST_NOTES = 10
"""Kinds of notes on rows in a report; there are fewer, but the records may be another person's."""
_WORK = ("decode", "store", "tokenise", "write")


def data_numbers(
    inputs: ReportInputs, results: Mapping[str, SliceResults]
) -> tuple[DataNumbers, ...]:
    """Return an entry for each stage that preprocesses; `results` are the valid ones, by stage."""
    numbers = []
    for stage in inputs.stages:
        if stage.run != PREPROCESS_RUN or stage.is_former:
            continue
        consolidated: list[Mapping[str, Any]] | None = None
        text_only = stage.config.get("text_only")
        for other in inputs.stages:
            is_consolidating = other.run == CONSOLIDATE_RUN and stage.name in other.after
            if is_consolidating and not other.is_former:
                consolidated = list(results[other.name].values())
                if other.config.get("text_only") is not None:
                    text_only = other.config["text_only"]
                break
        of_slices = list(results[stage.name].values())
        numbers.append(
            _data_of_stage(stage, of_slices, consolidated, is_text_meant=text_only is True)
        )
    return tuple(numbers)


def _data_of_stage(
    stage: StageInputs,
    results: Sequence[Mapping[str, Any]],
    consolidated: Sequence[Mapping[str, Any]] | None,
    *,
    is_text_meant: bool,
) -> DataNumbers:
    """Return the numbers; `consolidated` is None if no stage consolidates these parts."""
    samples, tokens = _total(results, "num_samples"), _total(results, "num_tokens")
    if tokens.value is None or not samples.value:
        reason = tokens.missing or samples.missing or "no samples"
        mean_tokens = missing("tokens/sample", reason)
    else:
        mean_tokens = known(tokens.value / samples.value, "tokens/sample")
    lengths = _counts(results, "num_tokens_histogram")
    # All tasks that finished the data set return the same statistics.
    statistics = (read_statistics(result.get("statistics")) for result in consolidated or ())
    mixtures = (read_mixture(result.get("manifests")) for result in consolidated or ())
    return DataNumbers(
        stage=stage.name,
        num_slices_reported=len(results),
        num_slices=stage.num_slices,
        num_rows=_total(results, "num_rows"),
        num_samples=samples,
        num_held_out=_total(results, "num_held_out") if stage.config.get("held_out") else None,
        num_rejects=_total(results, "num_rejected"),
        num_too_long=_total(results, "num_too_long"),
        num_truncated=_total(results, "num_truncated"),
        num_text_samples=_total(results, "num_text_samples"),
        is_text_meant=is_text_meant,
        row_notes=tuple(_counts(results, "row_notes").most_common(_MOST_NOTES)),
        num_tokens=tokens,
        mean_tokens=mean_tokens,
        num_shards=missing("count", "no stage consolidates these parts")
        if consolidated is None
        else _total(consolidated, "num_shards"),
        rejects=tuple(_counts(results, "rejects_by_reason").most_common()),
        length_counts=tuple(sorted((int(most), count) for most, count in lengths.items())),
        work_s={
            name: sum(result[f"{name}_s"] for result in results)
            for name in _WORK
            if results and all(f"{name}_s" in result for result in results)
        },
        stored_image=_stored_image(results),
        statistics=next((each for each in statistics if each is not None), None),
        mixture=next(filter(None, mixtures), ()),
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
