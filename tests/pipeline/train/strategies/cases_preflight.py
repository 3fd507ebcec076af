"""The preflight on the pair of ranks, of which one differs from the other."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from pipeline.timing.recorder import SpanLog
from pipeline.train.job import Job, phases_of
from pipeline.train.preflight import PREFLIGHT_NAME, preflight
from slurm_jobs.shared.files import read_json
from slurm_jobs.shared.timings import read_spans, spans_path
from tests.contexts import make_context
from tests.pipeline.train.strategies.cases import case
from tests.pipeline.train.strategies.trainer import SIZES, SMALL, Trainer, workplace_of

TOO_LARGE = {"hidden_size": 16384, "num_layers": 100, "num_heads": 128}
"""Of 300 thousand million parameters: no node of ours holds 16 bytes of each."""


def _run(pair: Trainer, *, variables: dict[str, str] | None = None, **options: Any) -> Any:
    """The preflight of a training with `options`, in an environment with `variables`."""
    rank, config = pair.ranks.rank, pair.config(**{"kind": "small_vlm", **options})
    context = make_context(
        "train", pair.folder, rank=rank, num_ranks=2, node_name=f"node-{rank}", node_rank=rank
    )
    job = Job(
        config=config,
        context=context,
        spans=SpanLog(context.timing_dir, rank),
        workplace=workplace_of(config),
        ranks=pair.ranks,
        began_unix_s=0.0,
    )
    phases, kind = phases_of(config), pair.kind(options.get("kind", "small_vlm"))
    folders = [kind.dataset_dir for _ in phases]
    with patch.dict(os.environ, variables or {}):
        return preflight(job, phases, folders, kind.facts)


@case("preflight")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    found = _run(pair, batching={"kind": "packed"}, num_microbatches=2)
    spans, _ = read_spans(spans_path(pair.folder / "timing", pair.ranks.rank))
    written = pair.folder / "train" / PREFLIGHT_NAME
    return {
        "found": found,
        "written": read_json(written) if written.exists() else None,
        "spans": [span["name"] for span in spans],
    }


@case("preflight, another config on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    _run(pair, seed=pair.ranks.rank)
    return {}


@case("preflight, little memory on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    variables = {"SLURM_MEM_PER_NODE": "1"} if pair.ranks.rank == 1 else None
    _run(pair, variables=variables, model={**SMALL, "language": {**SIZES, "hidden_size": 256}})
    return {}


@case("preflight, a model that is too large")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    _run(pair, model={**SMALL, "language": TOO_LARGE})
    return {}


@case("preflight, no model on rank 1")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    """Its folder is looked for before anything is staged in."""
    with patch("pipeline.models.loading.source_of", _source_on(pair.ranks.rank)):
        _run(pair, kind="qwen2_5_vl")
    return {}


def _source_on(rank: int) -> Any:
    return lambda config: config.path if rank == 0 else f"{config.path}/nothing"


@case("preflight, single with two ranks")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    _run(pair, strategy="single")
    return {}


@case("preflight, a part that is none")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    _run(pair, learn=["projector.*x"])
    return {}


@case("preflight, packed weights that would not survive")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    options = {"adapters": {"rank": 4}, "quantize": {"storage": "bf16"}}
    _run(pair, kind="qwen2_5_vl", **options)
    return {}
