"""The preflight on the pair of ranks, of which one differs from the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from pipeline.timing.span_log import SpanLog
from pipeline.train.job import Job
from pipeline.train.phase import phases_of
from pipeline.train.preflight.preflight import PREFLIGHT_NAME, preflight
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.timings.step_records import read_spans, spans_path
from tests.contexts import make_context
from tests.pipeline.train.strategies.cases import case
from tests.pipeline.train.strategies.trainer import SIZES, SMALL, Trainer, rank_device_of

TOO_LARGE = {"hidden_size": 16384, "num_layers": 100, "num_heads": 128}
"""Of 300 thousand million parameters: no node of ours holds 16 bytes of each."""
QLORA = {"adapters": {"rank": 4}, "quantize": {"storage": "bf16"}}


def language(sizes: dict[str, int]) -> dict[str, Any]:
    return {"model": {**SMALL, "language": {**SIZES, **sizes}}}


PROBLEMS: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "another config on rank 1": (
        lambda rank: {"seed": rank},
        "ranks are not alike: the stage's config is",
    ),
    "little memory on rank 1": (
        lambda rank: {
            "variables": {"SLURM_MEM_PER_NODE": "1"} if rank == 1 else {},
            **language({"hidden_size": 256}),
        },
        "SLURM_MEM_PER_NODE gives 1.05 MB: request more memory",
    ),
    "a model that is too large": (lambda _rank: language(TOO_LARGE), "must hold at least "),
    "no model on rank 1": (
        lambda rank: {"kind": "qwen2_5_vl", "suffix": "/nothing" if rank == 1 else ""},
        "(rank 1 on node-1)",
    ),
    "single with two ranks": (
        lambda _rank: {"strategy": "single"},
        "strategy is single, but the stage has 2 ranks",
    ),
    "a part that is none": (lambda _rank: {"learn": ["projector.*x"]}, "similar: projector"),
    "packed weights that would not survive": (
        lambda _rank: {"kind": "qwen2_5_vl", **QLORA},
        "set `quantize: {storage: uint8}`",
    ),
}
"""What each rank is given, and what all ranks say."""


def run(
    pair: Trainer,
    *,
    kind: str = "small_vlm",
    variables: dict[str, str] | None = None,
    suffix: str = "",
    **options: Any,
) -> Any:
    """The preflight of a training with `options`, in an environment with `variables`.

    `suffix`: of the model's folder, which is looked for before anything is staged in.
    """
    rank, config = pair.ranks.rank, pair.config(kind, **options)
    context = make_context(
        "train", pair.folder, rank=rank, num_ranks=2, node_name=f"node-{rank}", node_rank=rank
    )
    job = Job(
        config=config,
        context=context,
        spans=SpanLog(context.timing_dir, rank),
        rank_device=rank_device_of(config),
        ranks=pair.ranks,
        began_unix_s=0.0,
    )
    phases, data = phases_of(config), pair.kind(kind)
    source = patch(
        "pipeline.models.loading.pretrained.source_of", lambda model: f"{model.path}{suffix}"
    )
    with patch.dict(os.environ, variables or {}), source:
        return preflight(job, phases, [data.dataset_dir for _ in phases], data.facts)


@case("preflight")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    found = run(pair, batching={"kind": "packed"}, num_microbatches=2)
    spans, _ = read_spans(spans_path(pair.folder / "timing", pair.ranks.rank))
    written = pair.folder / "train" / PREFLIGHT_NAME
    return {
        "found": found,
        "written": read_json(written) if written.exists() else None,
        "spans": [span["name"] for span in spans],
    }


def problem(name: str, options_of: Callable[[int], dict[str, Any]]) -> None:
    @case(f"preflight, {name}")
    def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        run(pair, **options_of(pair.ranks.rank))
        return {}


for name, (options_of, _message) in PROBLEMS.items():
    problem(name, options_of)
