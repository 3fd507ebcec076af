"""Held-out rows of a manifest as prompts, and their check before a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.manifest import folder_of, open_manifests
from pipeline.preprocess.rejects import Reason, SampleRejectedError
from pipeline.train.level_rows import first_level
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import DEFAULT_MAX_IMAGE_MB, Columns
from slurm_jobs.formats.configs.train import NO_EVALUATION, EvaluateConfig
from slurm_jobs.formats.configs.training_phases import LevelConfig
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions

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
    preprocess: Mapping[str, Any],
    processor_dir: Path,
) -> None:
    """Refuse before training what could not be evaluated after it; one valid row is enough.

    Raises:
        StageConfigError: no row of the manifest can be used; or as in `open_manifest`.
    """
    encoder = make_encoder(config, preprocess, processor_dir)
    rows, rejects = read_rows(config, preprocess), []
    for number in range(len(rows)):
        prompts, rejected = encode_prompts(encoder, rows, [number], levels)
        if prompts:
            return
        rejects += rejected
    raise nothing_to_ask(config, rejects)


def nothing_to_ask(config: EvaluateConfig, rejects: Sequence[HeldOutReject]) -> StageConfigError:
    """Return the error of manifests without a row that can be used."""
    cause = f"none of its {len(rejects)} rows can be used" if rejects else "it has no rows"
    first = f" (first: {rejects[0].message})" if rejects else ""
    reasons = {reject.reason for reject in rejects}
    keys = [key for reason, key in _FOLDER_SETTINGS.items() if reason in reasons]
    remedy = ", ".join(["fix it", *(f"set {key}" for key in keys), "or"]) if keys else "fix it, or"
    return StageConfigError(
        f"evaluate.manifest {paths_of(config)}: {cause}{first}; {remedy} disable evaluation with "
        f"{NO_EVALUATION}"
    )


def paths_of(config: EvaluateConfig) -> str:
    """Return the paths of the manifests, for messages."""
    return ", ".join(entry.path for entry in config.manifests)


def make_encoder(
    config: EvaluateConfig, preprocess: Mapping[str, Any], processor_dir: Path
) -> SampleEncoder:
    """Return the encoder of held-out rows, with the limits of the data set."""
    roots = [
        Path(entry.image_root or config.image_root or folder_of(Path(entry.path)))
        for entry in config.manifests
    ]
    return SampleEncoder(
        processor_dir,
        image_root=roots[0],
        listed_image_roots=() if isinstance(config.manifest, str) else roots,
        images_within=None if config.images_within is None else Path(config.images_within),
        max_tokens=preprocess["max_tokens"],
        max_images=preprocess["max_images"],
        max_pixels=preprocess["max_pixels"],
        max_image_mb=preprocess.get("max_image_mb", DEFAULT_MAX_IMAGE_MB),
        # older data sets have only this
        image_decoding=preprocess.get("image_decoding", "exact"),
    )


def read_rows(
    config: EvaluateConfig, preprocess: Mapping[str, Any], *, most: int | None = None
) -> list[ManifestRow]:
    """Read the held-out rows, `most` of them, with the prompts of the data set.

    Raises:
        StageConfigError: a manifest cannot be read; as in `open_manifest`.
    """
    assert config.manifest is not None
    limits = [limit for limit in (config.num_samples, most) if limit is not None]
    options = RowOptions(
        prompt=preprocess["prompt"],
        system_prompt=preprocess["system_prompt"],
        columns=config.columns or Columns(**preprocess.get("columns", {})),
    )
    manifest = open_manifests(config.manifest, limit=min(limits, default=None), options=options)
    return list(manifest.rows(range(manifest.num_rows)))


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
