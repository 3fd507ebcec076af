"""Check that a training that evaluates during its steps has held-out rows. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.configs.stages import PreprocessConfig
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.stages.phases import parts_of
from slurm_jobs.spec.graph import preprocess_of


def evaluated_row_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the trainings that are to evaluate during their steps, and have nothing to evaluate."""
    for name, config in spec.configs.items():
        if not isinstance(config, TrainConfig) or config.evaluate.every_steps is None:
            continue
        if has_held_out_rows(spec, name, config) is False:
            message = (
                f"{config.evaluate.every_steps}, and evaluate.manifest is not given: give the "
                "held-out rows, let `preprocess` hold some out (`held_out: {share: 0.02}`), or "
                "leave every_steps out"
            )
            yield spec.problem(("stages", name, "config", "evaluate", "every_steps"), message)


def has_held_out_rows(spec: CheckedSpec, train: str, config: TrainConfig) -> bool | None:
    """Return whether a training has rows to evaluate; None if its data set decides.

    Args:
        spec: The spec.
        train: Name of the training.
        config: Config of the training.
    """
    if config.evaluate.manifest is not None:
        return True
    if not config.evaluate.held_out:
        return False
    source = preprocess_of(spec.views, train, parts_of(config)[-1].dataset)
    preprocess = None if source is None else spec.configs.get(source)
    if not isinstance(preprocess, PreprocessConfig):
        return None
    return preprocess.held_out is not None
