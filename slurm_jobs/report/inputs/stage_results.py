"""Results of a stage, without invalid numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slurm_jobs.base.json_values import is_amount, is_count, is_number

PREPROCESS_RUN = "preprocess"
"""`run:` of the built-in preprocessing, whose results have known types."""


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_count, value.values()))


def _are_lengths(value: Any) -> bool:
    return _are_counts(value) and all(str(length).isdecimal() for length in value)


def _is_image_price(value: Any) -> bool:
    """Accept None if no image was stored."""
    if not value:
        return True
    return (
        isinstance(value, Mapping)
        and is_count(value.get("num_measured"))
        and value["num_measured"] > 0
        and all(is_amount(value.get(name)) for name in ("bytes", "decode_ms"))
        and "psnr_db" in value
        and (value["psnr_db"] is None or is_number(value["psnr_db"]))
    )


_OF_PREPROCESSING: Mapping[str, Callable[[Any], bool]] = {
    "rejects_by_reason": _are_counts,
    "row_notes": _are_counts,
    "num_tokens_histogram": _are_lengths,
    "stored_image": _is_image_price,
}
"""Results of the built-in stage besides plain numbers."""


def sound_result(result: Mapping[str, Any], *, is_preprocessing: bool) -> dict[str, Any]:
    """Return the valid values; for a user's stage, everything except invalid numbers."""
    known = without_odd_numbers(result)
    if not is_preprocessing:
        return known
    return {name: value for name, value in known.items() if _is_written(name, value)}


def without_odd_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Remove NaN, infinity and numbers beyond all counts, at any depth."""
    normal = {name: value for name, value in values.items() if not _is_odd(value)}
    return {
        name: without_odd_numbers(value) if isinstance(value, Mapping) else value
        for name, value in normal.items()
    }


def _is_odd(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value)


def _is_written(name: str, value: Any) -> bool:
    """Check for a value that preprocessing writes."""
    if name in _OF_PREPROCESSING:
        return _OF_PREPROCESSING[name](value)
    return is_amount(value) if name.endswith("_s") or name.startswith("num_") else True
