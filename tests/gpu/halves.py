"""fp16: steps that overflow are skipped, the scale recovers, and weights stay finite."""

from __future__ import annotations

import math

import torch
from safetensors.torch import load_file

from slurm_jobs.common.errors import SlurmJobsError
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.work import Work


def overflow(work: Work) -> None:
    """Train from a scale that is too high, and a model whose activations overflow."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    scaler = {"init_scale": 2.0**30, "growth_interval": 2}
    config = train_config(kind, work, precision="fp16", num_steps=24, scaler=scaler)
    found = train(work.folder / "scale", config)
    skipped = int(found.result["num_skipped_steps"])
    work.note(num_skipped_steps=skipped, last_loss=found.losses[-1])
    work.check("steps that overflow are skipped", 0 < skipped < 24, skipped)
    work.check("the last loss is finite", math.isfinite(found.losses[-1]), found.losses[-1])
    norms = [float(norm) for norm in found.steps["grad_norm"]]
    resumes = next(n for n, norm in enumerate(norms) if math.isfinite(norm))
    later = sum(not math.isfinite(norm) for norm in norms[resumes:])
    work.check("the scale grows until it overflows again", later > 0, f"{later} later skips")
    _check_finite(work, found.context.output_dir / "model", "after skips")
    _inflated(work, kind)


def _inflated(work: Work, kind: object) -> None:
    """Train a model whose residual stream does not fit into fp16."""
    from transformers import AutoModelForImageTextToText

    folder = work.folder / "inflated-model"
    model = AutoModelForImageTextToText.from_pretrained(kind.model_dir)  # type: ignore[attr-defined]
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(3e5)
    model.save_pretrained(folder)
    config = train_config(
        kind, work, precision="fp16", num_steps=4, strategy="fsdp2", scaler={"max_skips": 3}
    )  # type: ignore[arg-type]
    config["model"] = {"type": "hugging_face", "path": str(folder)}
    try:
        found = train(work.folder / "inflated", config)
    except SlurmJobsError as error:
        work.note(inflated_model=str(error)[:200])
        work.check("an overflow is named", "overflow" in str(error) or "nan" in str(error), error)
        return
    work.note(inflated_losses=found.losses, inflated_skips=found.result["num_skipped_steps"])
    _check_finite(work, found.context.output_dir / "model", "of an inflated model")


def _check_finite(work: Work, model: object, name: str) -> None:
    weights = load_file(f"{model}/model.safetensors")
    bad = [key for key, value in weights.items() if not bool(torch.isfinite(value).all())]
    work.check(f"weights are finite {name}", not bad, bad)
