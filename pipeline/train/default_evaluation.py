"""Evaluation on the rows that the data set holds out, where the config names no manifest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.data.disk_format.dataset_info import DatasetInfo, read_dataset_info
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.stages import KNOWN_COLUMNS
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.dataset_folder import HELD_OUT_DIR, HELD_OUT_MANIFEST

log = logging.getLogger(__name__)


def with_held_out_rows(config: TrainConfig, datasets: Sequence[Path]) -> TrainConfig:
    """Return the config with the held-out rows of the last phase's data set as its manifest.

    It is unchanged if it names a manifest, or if there are none.

    Args:
        config: Config of the training.
        datasets: Data set of each phase.

    Raises:
        StageConfigError: rows are to be evaluated during the training, and there are none.
    """
    evaluate = config.evaluate
    if evaluate.manifest is not None or not evaluate.held_out:
        return config
    infos = {folder: read_dataset_info(folder) for folder in datasets}
    held_out = infos[datasets[-1]].held_out
    if held_out is not None and held_out.num_rows:
        share = _share_of(infos[datasets[-1]])
        for folder, info in infos.items():
            if (smaller := _share_of(info)) < share:
                message = (
                    f"evaluated pictures of {datasets[-1]} may be trained on if {folder} has them, "
                    f"too: it holds out a share of {smaller:g}, not {share:g}"
                )
                log.warning("%s", message)
        evaluate = replace(
            evaluate,
            manifest=str(datasets[-1] / HELD_OUT_DIR / HELD_OUT_MANIFEST),
            columns=KNOWN_COLUMNS,
            image_root=None,  # the pictures are next to the rows
            images_within=None,
        )
    elif evaluate.every_steps is not None and held_out is None:
        message = (
            f"evaluate.every_steps is {evaluate.every_steps}, evaluate.manifest is not given, and "
            f"{datasets[-1]} holds out no rows: give the held-out rows, let `preprocess` hold some "
            "out (`held_out: {share: 0.02}`), or leave every_steps out"
        )
        raise StageConfigError(message)
    elif held_out is not None:  # the first rows alone (`--limit`), or `consolidate` had refused it
        log.warning("%s holds out none of its few rows, so nothing is evaluated", datasets[-1])
        evaluate = replace(evaluate, every_steps=None)
    return replace(config, evaluate=evaluate)


def _share_of(info: DatasetInfo) -> float:
    held_out = info.preprocess.get("held_out")
    return 0.0 if held_out is None else float(held_out["share"])
