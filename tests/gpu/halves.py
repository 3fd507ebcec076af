"""fp16: steps that overflow are skipped, the scale recovers, weights stay finite, and answer."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from tests.gpu.models import held_out_rows, open_tiny, train, train_config
from tests.gpu.work import Work
from tests.pipeline.train.optimizer.test_loss_scaling import inflate_residual
from tests.pipeline.train.strategies.trainer import Alone

_NUM_STEPS = 90
"""About half are skipped. With fewer, two next tokens may be nearly equally likely."""


def overflow(work: Work) -> None:
    """Train from a scale that is too high, and a model whose activations overflow."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    scaler = {"init_scale": 2.0**30, "growth_interval": 2}
    config = train_config(kind, work, precision="fp16", num_steps=_NUM_STEPS, scaler=scaler)
    found = train(work.folder / "scale", config)
    skipped = int(found.result["num_skipped_steps"])
    work.note(num_skipped_steps=skipped, last_loss=found.losses[-1])
    work.check("steps that overflow are skipped", 0 < skipped < _NUM_STEPS, skipped)
    work.check("the last loss is finite", math.isfinite(found.losses[-1]), found.losses[-1])
    norms = [float(norm) for norm in found.steps["grad_norm"]]
    resumes = next(n for n, norm in enumerate(norms) if math.isfinite(norm))
    later = sum(not math.isfinite(norm) for norm in norms[resumes:])
    work.check("the scale grows until it overflows again", later > 0, f"{later} later skips")
    _check_finite(work, found.context.output_dir / "model", "after skips")
    _answers(work, kind, found.context.output_dir / "model")
    _resumed(work, kind)
    _inflated(work, kind)


class _NoEnding:
    """Stands in for the ending of a stage that nobody asks to stop."""

    def between(self, batches: Sequence[Any], _unit: str) -> Iterator[Any]:
        """Return all batches."""
        return iter(batches)


def _answers(work: Work, kind: Any, model_dir: Path) -> None:
    """Answer with the weights in fp16 and in fp32; sums beyond fp16 would give `!` alone."""
    from pipeline.train.device.rank_device import RankDevice
    from pipeline.train.evaluate import evaluate, load_trained
    from slurm_jobs.formats.configs.train import EvaluateConfig
    from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR

    answers = {}
    for dtype in (torch.float32, torch.float16):
        out_dir = work.folder / str(dtype)
        out_dir.mkdir()
        evaluate(
            EvaluateConfig(manifest=str(held_out_rows(kind)), num_samples=4, max_new_tokens=8),
            levels=(),
            facts=kind.facts,
            model=load_trained(model_dir, kind.facts, dtype, trust_remote_code=False),
            processor_dir=Path(kind.dataset_dir) / PROCESSOR_DIR,
            out_dir=out_dir,
            ranks=Alone(),  # type: ignore[arg-type]
            rank_device=RankDevice(
                device=work.torch_device, precision="fp16", num_compute_threads=2
            ),
            ending=_NoEnding(),  # type: ignore[arg-type]
        )
        lines = (out_dir / "generations.jsonl").read_text().splitlines()
        answers[dtype] = [json.loads(line)["generated"] for line in lines]
    half, whole = answers[torch.float16], answers[torch.float32]
    work.note(fp16_answers=half, fp32_answers=whole)
    work.check("fp16 answers are those of fp32", half == whole, f"{half}, {whole}")
    work.check("no answer is `!` alone", not any(set(text) == {"!"} for text in half), half)


def _resumed(work: Work, kind: Any) -> None:
    """Resume from a checkpoint between skips: scale, skips and weights are as without the cut."""
    config = train_config(
        kind, work, precision="fp16", num_steps=10,
        scaler={"init_scale": 2.0**22, "growth_interval": 2},
        checkpoint={"every_min": None, "every_steps": 3},
    )  # fmt: skip
    whole = train(work.folder / "whole", config)
    name = "checkpoints/step-00000009"  # the last one stays
    cut = work.folder / "cut"
    saved = whole.context.output_dir / name
    shutil.copytree(saved, cut / saved.relative_to(work.folder / "whole"))
    again = train(cut, config)
    skips = [int(each.result["num_skipped_steps"]) for each in (whole, again)]
    work.check("it resumed", again.result["resumed_from_step"] == 9, again.result)
    work.check("as many skips as without the cut", skips[0] == skips[1] > 0, skips)
    work.check("the same bits as without the cut", again.weights == whole.weights)


def _inflated(work: Work, kind: Any) -> None:
    """Train a model whose residual sums do not fit into fp16, which are kept in fp32."""
    config = train_config(
        kind, work, precision="fp16", num_steps=3, strategy="fsdp2",
        scaler={"init_scale": 8.0, "max_skips": 2},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        inflate_residual(patch, keep_residual_in_fp32)
        found = train(work.folder / "inflated", config)
    skips = int(found.result["num_skipped_steps"])
    work.check("residual sums beyond fp16 skip no step", skips == 0, skips)
    work.check("its losses are finite", all(map(math.isfinite, found.losses)), found.losses)
    _check_finite(work, found.context.output_dir / "model", "of an inflated model")


def _check_finite(work: Work, model: object, name: str) -> None:
    weights = load_file(f"{model}/model.safetensors")
    bad = [key for key, value in weights.items() if not bool(torch.isfinite(value).all())]
    work.check(f"weights are finite {name}", not bad, bad)
