"""Held-out rows of a manifest as prompts, and their check before a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.manifest import folder_of, read_manifest
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from pipeline.train.level_rows import first_level
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import DEFAULT_MAX_IMAGE_MB, Columns
from slurm_jobs.formats.configs.train import NO_EVALUATION, EvaluateConfig
from slurm_jobs.formats.configs.training_phases import LevelConfig
from slurm_jobs.formats.manifests.messages import ManifestRow

_FOLDER_SETTINGS: Mapping[Reason, str] = {
    "missing_image": "evaluate.image_root",
    "image_outside": "evaluate.images_within",
}
"""Settings that may let an image be read, by the reason why it was not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutReject:
    """Reason for which a held-out row is left out; ranks send it to each other."""

    reason: Reason
    message: str


def check_heldout(
    config: EvaluateConfig,
    *,
    levels: Sequence[LevelConfig],
    manifest: Path,
    preprocess: Mapping[str, Any],
    processor_dir: Path,
) -> None:
    """Refuse before training what could not be evaluated after it; one valid row is enough.

    Raises:
        StageConfigError: no row of the manifest can be used; or as in `read_manifest`.
    """
    encoder = make_encoder(config, manifest, preprocess, processor_dir)
    rows, rejects = read_rows(config, manifest, preprocess), []
    for number in range(len(rows)):
        prompts, rejected = encode_prompts(encoder, rows, [number], levels)
        if prompts:
            return
        rejects += rejected
    raise nothing_to_ask(manifest, rejects)


def nothing_to_ask(manifest: Path, rejects: Sequence[HeldOutReject]) -> StageConfigError:
    """Return the error of a manifest without a row that can be used."""
    cause = f"none of its {len(rejects)} rows can be used" if rejects else "it has no rows"
    first = f" (first: {rejects[0].message})" if rejects else ""
    reasons = {reject.reason for reject in rejects}
    keys = [key for reason, key in _FOLDER_SETTINGS.items() if reason in reasons]
    remedy = ", ".join(["fix it", *(f"set {key}" for key in keys), "or"]) if keys else "fix it, or"
    return StageConfigError(
        f"evaluate.manifest {manifest}: {cause}{first}; {remedy} disable evaluation with "
        f"{NO_EVALUATION}"
    )


def make_encoder(
    config: EvaluateConfig, manifest: Path, preprocess: Mapping[str, Any], processor_dir: Path
) -> SampleEncoder:
    """Return the encoder of held-out rows, with the limits of the data set."""
    return SampleEncoder(
        processor_dir,
        image_root=folder_of(manifest) if config.image_root is None else Path(config.image_root),
        images_within=None if config.images_within is None else Path(config.images_within),
        max_tokens=preprocess["max_tokens"],
        max_images=preprocess["max_images"],
        max_pixels=preprocess["max_pixels"],
        max_image_mb=preprocess.get("max_image_mb", DEFAULT_MAX_IMAGE_MB),
        # older data sets have only this
        image_decoding=preprocess.get("image_decoding", "exact"),
    )


def read_rows(
    config: EvaluateConfig, manifest: Path, preprocess: Mapping[str, Any]
) -> list[ManifestRow]:
    """Read the held-out rows, with the prompts of the data set; raises like `read_manifest`."""
    return read_manifest(
        manifest,
        config.num_samples,
        prompt=preprocess["prompt"],
        system_prompt=preprocess["system_prompt"],
        columns=config.columns or Columns(**preprocess.get("columns", {})),
    )


def encode_prompts(
    encoder: SampleEncoder,
    rows: Sequence[ManifestRow],
    numbers: Iterable[int],
    levels: Sequence[LevelConfig],
) -> tuple[list[tuple[int, EncodedPrompt]], list[HeldOutReject]]:
    """Return the prompts of these rows (of chains, the first level's), and why rows have none."""
    prompts, rejected = [], []
    for number in numbers:
        try:
            row = first_level(rows[number], levels) if levels else rows[number]
            prompts.append((number, encoder.encode_prompt(row)))
        except SampleRejectedError as error:
            rejected.append(HeldOutReject(reason=error.reason, message=str(error)))
    return prompts, rejected
