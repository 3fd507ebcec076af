"""Memory of a GPU that runs out."""

from __future__ import annotations

import itertools

import pytest
import torch

from pipeline.train import loop, stage
from pipeline.train.strategies.single import Single
from slurm_jobs.base.errors import StageConfigError

NEEDS_LESS = (
    "set `num_microbatches: auto`, or num_microbatches to more than 1; "
    ".*`activation_checkpointing: true`"
)


@pytest.mark.parametrize(
    ("place", "name", "call", "words"),
    [
        (Single, "parallelize", 1, "while the model was built .*`strategy: fsdp2`"),
        (
            loop,
            "_accumulate",
            3,
            rf"in step 2 \(CUDA .* 2.00 GiB\); {NEEDS_LESS}",
        ),
        (stage, "export_model", 1, "while the model was exported .*resume on devices with more"),
        (stage, "evaluate", 1, "while held-out rows were answered .*evaluate.batch_size"),
    ],
)
def test_memory_that_runs_out_names_place_and_remedy(
    make_train_run, monkeypatch, heldout, *, place, name, call, words
):
    calls, really = itertools.count(1), getattr(place, name)

    def run_out(*args, **options):
        if next(calls) == call:
            message = "CUDA out of memory. Tried to allocate 2.00 GiB"
            raise torch.OutOfMemoryError(message)
        return really(*args, **options)

    monkeypatch.setattr(place, name, run_out)
    run = make_train_run(evaluate={"manifest": heldout})
    with pytest.raises(StageConfigError, match=rf"rank 0 ran out of memory {words}"):
        run.run_here()
