"""The file of `strategy: accelerate`, as a rank reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageDataError, StageError
from slurm_jobs.formats.accelerate_file import (
    AccelerateFile,
    SpecValues,
    find_problems,
    precision_of,
    understand,
)
from slurm_jobs.formats.configs.train import TrainConfig


def asked_precision(config: TrainConfig) -> str:
    """Return the config's precision; for `precision: auto` that of accelerate's file, if any.

    Raises:
        StageConfigError: the file does not exist.
    """
    if config.accelerate is None or config.precision != "auto":
        return config.precision
    file = config.accelerate.config
    values = _parse(file, _read(file))
    return (precision_of(values) if isinstance(values, dict) else None) or "auto"


def read_accelerate_file(
    config: TrainConfig, ranks: Ranks, *, num_nodes: int
) -> AccelerateFile | None:
    """Read and check the file, None if the config names none; a collective.

    Raises:
        StageConfigError: it does not exist, or a training cannot satisfy it.
        StageError: rank 0 read different content.
    """
    if config.accelerate is None:
        return None
    file = config.accelerate.config
    text = _read(file)
    if text != ranks.from_main(text):
        message = (
            f"{file}: rank {ranks.rank} reads other content than rank 0: the file was just "
            "changed, or a node has a stale copy; try again"
        )
        raise StageError(message)
    values = _parse(file, text)
    asker = SpecValues(
        num_ranks=ranks.num_ranks,
        num_nodes=num_nodes,
        device=config.device,
        precision=config.precision,
    )
    problems = find_problems(values, asker)
    if problems:
        message = f"{file}: {'; '.join(problems)}"
        raise StageDataError(message)
    return understand(values)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        message = f"{file}: the file of accelerate cannot be read: {error.strerror or error}"
        raise StageDataError(message) from error
    except UnicodeDecodeError as error:
        message = f"{file}: not a text file in UTF-8"
        raise StageDataError(message) from error


def _parse(file: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{file}: not valid YAML ({error}); write it with `accelerate config`"
        raise StageDataError(message) from error
