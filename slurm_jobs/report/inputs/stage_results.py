"""Results of a stage, without invalid numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slurm_jobs.base.json_values import is_amount, is_count, is_number

PREPROCESS_RUN = "preprocess"
"""`run:` of the built-in preprocessing, whose results have known types."""


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_count, value.values()))


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
    "num_tokens_histogram": lambda value: (
        _are_counts(value) and all(str(length).isdecimal() for length in value)
    ),
    "stored_image": _is_image_price,
}
"""Results of the built-in stage besides plain numbers."""


def sound_result(result: Mapping[str, Any], *, is_preprocessing: bool) -> dict[str, Any]:
    """Return the valid values; for a user's stage, everything except invalid numbers."""
    known = without_odd_numbers(result)
    if not is_preprocessing:
        return known
    sound = {}
    for name, value in known.items():
        is_sound = _OF_PREPROCESSING.get(name)
        if is_sound is None and (name.endswith("_s") or name.startswith("num_")):
            is_sound = is_amount
        if is_sound is None or is_sound(value):
            sound[name] = value
    return sound


def without_odd_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Remove NaN, infinity and numbers beyond all counts, at any depth."""
    normal = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            normal[name] = without_odd_numbers(value)
        elif isinstance(value, bool) or not isinstance(value, int | float) or is_number(value):
            normal[name] = value
    return normal
