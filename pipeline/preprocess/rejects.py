"""Reasons why a row of the manifest cannot become a sample, and limits for such rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, Literal

from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.configs.stages import (
    CHOSEN_REASONS,
    HELD_OUT,
    NOT_BROKEN,
    PARTLY_HELD_OUT,
)
from slurm_jobs.formats.manifests.image_paths import ABSOLUTE_HINT
from slurm_jobs.formats.records.task_context import resume_command

Reason = Literal[
    "bad_row",  # the row is invalid
    "refused_by_template",  # the chat template raises an error on its messages
    "missing_image",
    "image_outside",  # of the allowed image folders
    "unreadable_image",  # by its mode, or a folder's
    "empty_image",  # zero bytes
    "not_an_image",
    "truncated_image",
    "corrupt_image",
    "unexpected_error",  # unexpected error of the decoder or of this code
    "too_many_bytes",  # of the file, before it is read
    "too_many_pixels",  # as stored, or when resized before the crop
    "unfit_size",  # the processor refuses images of this shape
    "unsupported_mode",  # 32-bit, floating-point or LAB: the value of white is unknown
    "too_many_images",
    "image_token_in_text",
    "control_token_in_text",  # a special token, or another that the template prints around answers
    "image_lost_by_template",  # fewer image tokens than images
    "nothing_supervised",  # the answers are empty
    "images_too_long",  # the image tokens alone exceed max_tokens
    "too_long",  # left out by `too_long: drop`, or a cut leaves nothing to learn
    "held_out",  # evaluated instead of trained on
    "partly_held_out",  # some of its pictures are held out, and others are trained on
]


class SampleRejectedError(Exception):
    """Row that cannot become a sample; the stage continues without it."""

    def __init__(self, *, reason: Reason, message: str, num_tokens: int | None = None) -> None:
        super().__init__(truncated(message))
        self.reason: Reason = reason
        self.num_tokens = num_tokens
        """Length of a row that is left out as too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """One line of a part's list of rejects."""

    row: int
    """Number of the row in its whole manifest, from 0."""
    key: str
    source: str
    """The row's id, or its first image."""
    place: str
    """File and line of the row."""
    reason: str
    message: str
    num_tokens: int | None = None
    """Length of a row over `max_tokens`."""
    manifest: str | None = None
    """Name of its manifest, if that is one of a list."""

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON values; `num_tokens` and `manifest` only if set."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectLimit:
    """Limit of lost rows of a manifest, over all slices together."""

    max_reject_share: float
    num_rows: int
    """Rows of the whole manifest."""
    max_too_long_share: float = 1.0
    """Limit for rows that `too_long` leaves out."""

    @property
    def num_allowed(self) -> int:
        """Share, rounded up to whole rows: one bad image fails a small manifest only if it is 0.

        The share is used as decimal: 0.07 of 100 rows is 7, though as a float it is slightly
        more.
        """
        return self._rounded_up(self.max_reject_share)

    def _rounded_up(self, share: float) -> int:
        return math.ceil(Fraction(str(share)) * self.num_rows)

    def too_long_problem(
        self,
        rejects_by_reason: Mapping[str, int],
        lengths: Sequence[int],
        settings: Mapping[str, Any],
    ) -> str | None:
        """Return the problem if more rows than allowed are too long; else None.

        Args:
            rejects_by_reason: Counts of the judged rows.
            lengths: Tokens of each row over `max_tokens`.
            settings: Settings with the limits of rows.
        """
        chosen = {r: n for r, n in rejects_by_reason.items() if r in CHOSEN_REASONS}
        num_long, num_allowed = sum(chosen.values()), self._rounded_up(self.max_too_long_share)
        if num_long <= num_allowed:
            return None
        limits = sorted({CHOSEN_REASONS[reason] for reason in chosen})
        limits_set = " and ".join(f"{limit} is {settings[limit]}" for limit in limits)
        have = (
            f"; the rows over max_tokens have {median(lengths):,.0f} tokens in the median, "
            f"{max(lengths):,} at most"
            if lengths
            else ""
        )
        return (
            f"{num_long} of {self.num_rows} rows are too long ({_reasons(_by_count(chosen))}); "
            f"max_too_long_share: {self.max_too_long_share:g} allows {num_allowed}. "
            f"{limits_set}{have}"
        )

    def needed_too_long_share(self, rejects_by_reason: Mapping[str, int]) -> float:
        """Return the least `max_too_long_share` of three digits that allows these rejects."""
        num_long = sum(n for r, n in rejects_by_reason.items() if r in CHOSEN_REASONS)
        return math.ceil(1000 * num_long / self.num_rows) / 1000

    def no_sample_text(self, rejects_by_reason: Mapping[str, int]) -> str:
        """Report that no row of the manifest became a sample, with the reasons."""
        reasons = _reasons(_by_count(rejects_by_reason))
        if self.num_rows == 1:
            return f"the only row did not become a sample ({reasons})"
        return f"none of {self.num_rows} rows became a sample ({reasons})"

    def nothing_left(
        self,
        rejects_by_reason: Mapping[str, int],
        settings: Mapping[str, Any],
        *,
        fixed: str,
        run: str,
        stage: str,
    ) -> str:
        """Report that no row became a sample, with reasons and remedies.

        Args:
            rejects_by_reason: Counts of the whole manifest.
            settings: Settings of the parts, with the limits of rows.
            fixed: Command to run after fixing the rows.
            run: Folder of the run.
            stage: Name of the preprocessing stage in the spec.
        """
        counts = _by_count(rejects_by_reason)
        message = self.no_sample_text(counts)
        limits = sorted({CHOSEN_REASONS[reason] for reason in counts if reason in CHOSEN_REASONS})
        if counts.keys() <= {HELD_OUT, PARTLY_HELD_OUT}:
            smaller = f"stages.{stage}.config.held_out.share=NUMBER"
            return (
                f"{message}. Hold out a smaller share by `{resume_command(run, '--set', smaller)}`"
            )
        if not limits:
            return f"{message}. Fix these rows, then `{fixed}`"
        allowed = " and ".join(f"{limit}: {settings[limit]}" for limit in limits)
        changes = [f"stages.{stage}.config.{limit}=NUMBER" for limit in limits]
        command = resume_command(run, *(word for set_ in changes for word in ("--set", set_)))
        return (
            f"{message}; {allowed} leaves out rows over it. Raise it by `{command}`; the list "
            "has the value of each row"
        )

    def problem(self, rejects_by_reason: Mapping[str, int]) -> str | None:
        """Return the problem if more rows than allowed were lost in all slices; else None."""
        broken = _broken(rejects_by_reason)
        num_broken = sum(broken.values())
        if num_broken <= self.num_allowed:
            return None
        return (
            f"{num_broken} of {self.num_rows} rows cannot be used ({_reasons(_by_count(broken))}); "
            f"max_reject_share: {self.max_reject_share} allows {self.num_allowed}"
        )

    def needed_share(self, rejects_by_reason: Mapping[str, int]) -> float:
        """Return the least `max_reject_share` of three digits that allows these rejects."""
        return math.ceil(1000 * sum(_broken(rejects_by_reason).values()) / self.num_rows) / 1000


def _broken(rejects_by_reason: Mapping[str, int]) -> dict[str, int]:
    """Return the rejects that no setting asked for."""
    return {r: n for r, n in rejects_by_reason.items() if r not in NOT_BROKEN}


def count_reasons(rejects: Sequence[Reject]) -> dict[str, int]:
    """Return the number of rejects by reason, most common first, ties by name."""
    return _by_count(Counter(reject.reason for reject in rejects))


def pixels_of_token(model_inputs: Mapping[str, Any]) -> int | None:
    """Return the area of an image per token, where `image_pixels` limits images."""
    if model_inputs["image_kind"] != "native":
        return None
    return int((model_inputs["patch_size"] * model_inputs["merge_size"]) ** 2)


def too_long_remedies(
    rejects_by_reason: Mapping[str, int],
    lengths: Sequence[int],
    *,
    pixels_of_token: int | None,
    max_tokens: int,
) -> str:
    """Return what keeps rows that are too long: keys of `preprocess` with values, if any do.

    Args:
        rejects_by_reason: Counts of the judged rows.
        lengths: Tokens of each row over `max_tokens`.
        pixels_of_token: Area of an image per token; None if no key makes images smaller.
        max_tokens: The exceeded limit.
    """
    changes = []
    if lengths and pixels_of_token:
        pixels = max(1, max_tokens * 5 // 8) * pixels_of_token
        changes.append(f"image_pixels.max={pixels} (smaller images, 5/8 of max_tokens each)")
    if lengths:
        changes.append(f"max_tokens={max(lengths)} (longer samples)")
    if "too_many_images" in rejects_by_reason:
        changes.append("max_images=NUMBER")
    return " or ".join(changes) or "dividing each into several rows"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceHint:
    """Advice about the places of images, for the end of a message."""

    text: str
    setting: str | None = None
    """`KEY=FOLDER` of the stage's config, if a folder is the remedy."""


def about_places(
    counts: Mapping[str, int],
    *,
    first: str,
    root: Path,
    root_key: str,
    command: str,
    has_samples: bool,
) -> list[PlaceHint]:
    """Return hints on images that are missing, outside of the folder, or too large.

    Args:
        counts: Rejects by reason.
        first: Message of the first; `root` has no effect on an absolute path.
        root: Base folder of relative paths.
        root_key: Key of the stage's config that sets it.
        command: Command that sets a key of the stage, up to the key.
        has_samples: True if some rows can be used.
    """
    hints = []
    is_missing = "missing_image" in counts and ABSOLUTE_HINT not in first
    if is_missing and len(counts) == 1 and not has_samples:
        setting = f"{root_key}=FOLDER"
        text = f"Images are expected in {root}; if that is the wrong folder: `{command}.{setting}`"
        hints.append(PlaceHint(text=text, setting=setting))
    elif is_missing:
        hints.append(PlaceHint(text=f"Images are expected in {root} ({root_key})"))
    if "image_outside" in counts:
        setting = "images_within=FOLDER"
        text = (
            f"By default a manifest may not read files outside of {root}; to allow it: "
            f"`{command}.{setting}`, one that contains them all"
        )
        hints.append(PlaceHint(text=text, setting=setting))
    if "too_many_pixels" in counts:
        text = (
            "max_pixels rejects larger image files instead of resizing them; image_pixels.max "
            "is the limit that images are resized to"
        )
        hints.append(PlaceHint(text=text))
    if "too_many_bytes" in counts:
        text = f"If these are your images, raise the limit: `{command}.max_image_mb=NUMBER`"
        hints.append(PlaceHint(text=text))
    return hints


def add_reasons(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add the counts of several slices, most common first, ties by name."""
    total: Counter[str] = Counter()
    for by_reason in counts:
        total.update(by_reason)
    return _by_count(total)


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items())


def _by_count(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
