"""Proof on the first batch of an attempt that packed samples compute as they do alone.

A sample of the first packed row is computed three times: in the real microbatch, in the same
microbatch with other tokens and images in all other samples, and alone. Its logits must be those
of the sample alone but for rounding, and no bit of them may change with its neighbours. So a leak
is seen wherever it is: in attention, in the state of a recurrent layer, in a convolution, in a
vision tower, or in what the loader made of positions and bounds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
import transformers

from pipeline.data.batch import Batch, ModelNeeds
from pipeline.data.batches.one_sample import (
    PlacedSample,
    alone,
    has_own_positions,
    is_one_segment,
    placed_samples,
    with_other_neighbours,
)
from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.computation.experts import is_experts
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.span_log import SpanLog
from pipeline.train.attention.sample_logits import SampleLogits
from pipeline.train.attention.varlen_check import tolerance
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from slurm_jobs.base.errors import PackingLeakError
from slurm_jobs.formats.timings.packed_check import PACKED_CHECK_SPAN, PackedCheck

log = logging.getLogger(__name__)

_MOST_NOISE = 2
"""Multiple of the difference that one epsilon of noise in each layer makes. Measured in tiny models
on a CPU, packed and alone differ by at most 0.04 times as much."""

Leak = Literal["bounds", "positions", "neighbours", "alone"]
"""What shows that a sample is not computed as it is alone.

- `bounds`: the bounds of segments are not those of the sample.
- `positions`: its positions are not those that it has alone.
- `neighbours`: its logits change with the other samples of the microbatch.
- `alone`: its logits are not those of the sample alone.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """Comparison of one rank's sample."""

    sample: str
    """For people: key, place in its row, and size."""
    host_leak: Leak | None
    """Leak that the microbatch shows before it is computed."""
    is_finite: bool
    """False if logits overflowed: then nothing can be compared."""
    num_places: int
    """Tokens whose logits are compared."""
    num_changed: int
    """Of these, tokens of which a bit changes with other neighbours."""
    changed: float
    """Mean relative difference with other neighbours."""
    different: float
    """Mean relative difference alone."""
    is_repeatable: bool = True
    """False if the same pass gave other bits when it was repeated."""
    noise: float = 0.0
    """Mean relative difference that rounding noise in each layer makes; 0 if not measured."""


def check_packed_rows(
    batches: Sequence[Batch],
    *,
    strategy: Strategy,
    parallel: ParallelModel,
    needs: ModelNeeds,
    data: DatasetInfo,
    rank_device: RankDevice,
    ranks: Ranks,
    spans: SpanLog,
) -> None:
    """Compare a packed sample of each rank with itself alone, and with other neighbours.

    A collective; does nothing if no rank has packed rows in the microbatches of this step. All
    ranks make the same number of passes, which are without gradients and leave no trace.

    Raises:
        PackingLeakError: on all ranks: a sample of one depends on its neighbours.
    """
    packed = [batch for batch in batches if batch.is_packed]
    (num_samples,) = ranks.sums([float(bool(packed))])
    if not num_samples:
        return
    batch = (packed or batches)[0]
    sample = _choose(batch)
    compute = SampleLogits(strategy=strategy, parallel=parallel, rank_device=rank_device)
    limit = tolerance(_rounding(rank_device), "outputs", _num_layers(parallel.bare))
    is_exact = not any(is_experts(module) for module in parallel.bare.modules())
    with spans.span(PACKED_CHECK_SPAN) as notes, compute.undisturbed():
        passes = _Passes(compute, batch, sample, needs=needs, data=data)
        measured = passes.measure()
        is_doubtful = _leak(measured, limit=limit, is_exact=is_exact) is not None
        (num_doubtful,) = ranks.sums([float(is_doubtful)])
        if num_doubtful:  # all ranks, because passes may be collectives
            measured = passes.with_controls(measured)
        by_rank = ranks.from_main(ranks.gather(measured if packed else None))
        for rank, each in enumerate(by_rank):
            leak = each and _leak(each, limit=limit, is_exact=is_exact)
            if leak:
                message = _message(leak, each, compute, rank=rank, limit=limit)
                raise PackingLeakError(message)
        compared = [each for each in by_rank if each is not None and each.is_finite]
        check = PackedCheck(
            num_samples=len(compared),
            difference=max((each.different for each in compared), default=0.0),
            limit=max((_limit(each, limit) for each in compared), default=limit),
            is_exact=is_exact and all(each.is_repeatable for each in compared),
        )
        notes.update(asdict(check))
    if ranks.rank == 0:
        log.info(
            "packing: the logits of %d packed sample%s differ from those of the sample alone by "
            "%.2g %% (rounding in %s explains %.2g %%)%s",
            check.num_samples,
            "" if check.num_samples == 1 else "s",
            100 * check.difference,
            rank_device.precision,
            100 * check.limit,
            ", and no bit changes with other neighbours" if check.is_exact else "",
        )


def _choose(batch: Batch) -> PlacedSample:
    """Return the sample of the first packed row that most leaks would reach.

    That is one with a sample before it and, if possible, with an image and a sample after it.
    """
    candidates = [sample for sample in placed_samples(batch) if sample.num_in_row > 1]
    if not candidates:  # another rank has packed rows, and this one joins its passes
        return next(placed_samples(batch))
    return max(
        (sample for sample in candidates if sample.row == candidates[0].row),
        key=lambda sample: (
            sample.number_in_row > 0,
            sample.num_images > 0,
            sample.number_in_row < sample.num_in_row - 1,
        ),
    )


class _Passes:
    """Passes of one rank; every rank makes them in the same order."""

    def __init__(
        self,
        compute: SampleLogits,
        batch: Batch,
        sample: PlacedSample,
        *,
        needs: ModelNeeds,
        data: DatasetInfo,
    ) -> None:
        self._compute, self._batch, self._sample = compute, batch, sample
        self._alone = alone(
            batch,
            sample,
            image_token_id=data.image_token_id,
            pad_token_id=data.pad_token_id,
            needs=needs,
        )
        self._others = with_other_neighbours(batch, sample, image_token_id=data.image_token_id)

    def measure(self) -> _Measured:
        """Compare the sample in its row with other neighbours, and alone."""
        sample, batch = self._sample, self._batch
        self._in_row = self._compute(batch, sample.start, sample.num_tokens)
        self._changed = changed = self._compute(self._others, sample.start, sample.num_tokens)
        self._lone = self._compute(self._alone, 0, sample.num_tokens)
        leak: Leak | None = None
        if not is_one_segment(batch, sample):
            leak = "bounds"
        elif not has_own_positions(batch, sample, self._alone):
            leak = "positions"
        return _Measured(
            sample=(
                f"{batch.keys[sample.number]} (number {sample.number_in_row + 1} of "
                f"{sample.num_in_row} in its row, {sample.num_tokens} tokens, "
                f"{sample.num_images} image{'' if sample.num_images == 1 else 's'})"
            ),
            host_leak=leak,
            is_finite=all(
                bool(logits.isfinite().all()) for logits in (self._in_row, changed, self._lone)
            ),
            num_places=len(changed),
            num_changed=int((changed != self._in_row).any(dim=1).sum()),
            changed=_difference(changed, self._in_row),
            different=_difference(self._in_row, self._lone),
        )

    def with_controls(self, measured: _Measured) -> _Measured:
        """Measure also whether kernels repeat their results, and what rounding does."""
        sample = self._sample
        in_row, changed = (
            self._compute(batch, sample.start, sample.num_tokens)
            for batch in (self._batch, self._others)
        )
        epsilon = torch.finfo(_rounding(self._compute.rank_device)).eps
        with self._compute.rounding_noise(epsilon):
            noisy = self._compute(self._alone, 0, sample.num_tokens)
        return replace(
            measured,
            is_repeatable=torch.equal(in_row, self._in_row) and torch.equal(changed, self._changed),
            noise=_difference(noisy, self._lone),
        )


def _leak(measured: _Measured, *, limit: float, is_exact: bool) -> Leak | None:
    """Return what shows a leak; `is_exact`: no bit may depend on neighbours."""
    if measured.host_leak is not None or not measured.is_finite:
        return measured.host_leak
    limit = _limit(measured, limit)
    if is_exact and measured.is_repeatable:
        if measured.num_changed:
            return "neighbours"
    elif measured.changed > limit:
        return "neighbours"
    return "alone" if measured.different > limit else None


def _limit(measured: _Measured, limit: float) -> float:
    return max(limit, _MOST_NOISE * measured.noise) if math.isfinite(measured.noise) else limit


def _difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the mean over tokens of the relative difference, of logits without their mean."""
    a, b = (each.float() - each.float().mean(dim=1, keepdim=True) for each in (logits, expected))
    least = torch.finfo(torch.float32).tiny
    return float(((a - b).norm(dim=1) / b.norm(dim=1).clamp_min(least)).mean())


def _rounding(rank_device: RankDevice) -> torch.dtype:
    """Return the dtype whose rounding products have: TF32 has the fraction of fp16."""
    is_tf32 = rank_device.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return torch.float16 if rank_device.precision == "fp32" and is_tf32 else rank_device.dtype


def _num_layers(model: VisionLanguageModel) -> int:
    return sum(tower.num_layers for tower in model.sizes())


def _message(
    leak: Leak, measured: _Measured, compute: SampleLogits, *, rank: int, limit: float
) -> str:
    found = {
        "bounds": "the bounds that attention receives are not those of the sample",
        "positions": "its positions in the row are not those that it has alone",
        "neighbours": (
            f"other tokens and images in the other samples change its logits at "
            f"{measured.num_changed} of {measured.num_places} tokens, by "
            f"{100 * measured.changed:.2g} % on average"
        ),
        "alone": (
            f"its logits differ by {100 * measured.different:.2g} % from those of the sample "
            f"alone, and rounding in {compute.rank_device.precision} explains "
            f"{100 * _limit(measured, limit):.2g} %"
        ),
    }[leak]
    dense = "`attention: dense`, or " if compute.parallel.bare.uses_varlen else ""
    return (
        f"packed samples are not computed as they are alone: for sample {measured.sample} in the "
        f"first batch of rank {rank}, {found}. Nothing was learned. Set {dense}"
        "`batching: {kind: grouped}`, which packs no rows, and report this with the model's "
        f"config.json (torch {torch.__version__}, transformers {transformers.__version__})"
    )
