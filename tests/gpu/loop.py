"""The `train` stage as a whole: killed and resumed, its checkpoints, and its synchronisations."""

from __future__ import annotations

import collections
import traceback
import warnings
from typing import Any
from unittest import mock

from tests.gpu import saving
from tests.gpu.models import held_out_rows, open_tiny, train, train_config, train_in_process
from tests.gpu.work import Work

KIND = "qwen2_5_vl"
_STEADY_STEPS = (3, 4)
"""Of six: the first ones load kernels, and the last one reads its own verdict."""


def resume(work: Work) -> None:
    """Kill a training, resume it, and compare its weights with those of one left alone."""
    kind = open_tiny(KIND, work.shared)
    config = train_config(
        kind, work, num_steps=8, precision="auto", checkpoint={"every_min": None, "every_steps": 2}
    )
    alone = train_in_process(work.folder / "alone", config)
    assert alone is not None
    killed = train_in_process(work.folder / "killed", config, kill_at_step=5)
    work.check("the training was killed", killed is None)
    resumed = train_in_process(work.folder / "killed", config, attempt=2)
    assert resumed is not None
    first = int(resumed.result["resumed_from_step"])
    work.note(precision=alone.result["precision"], resumed_from_step=first)
    work.check("it resumes from a checkpoint", 0 < first <= 5, first)
    work.check("weights are bit-equal", resumed.weights == alone.weights)
    work.check("losses are bit-equal", resumed.losses == alone.losses[first:])


def checkpoint_modes(work: Work) -> None:
    """Save both ways, look at held-out rows, export; all must give the same weights."""
    kind = open_tiny(KIND, work.shared)
    evaluate = {
        "manifest": str(held_out_rows(kind)),
        "every_steps": 2,
        "num_loss_samples": 2,
        "num_answers": 1,
        "max_new_tokens": 4,
    }
    found = {}
    for mode in ("sync", "async"):
        checkpoint = {"every_min": None, "every_steps": 2, "mode": mode}
        config = train_config(kind, work, num_steps=4, checkpoint=checkpoint, evaluate=evaluate)
        found[mode] = train(work.folder / mode, config)
        saved_s = float(found[mode].steps["checkpoint_s"].sum())
        work.note(**{f"{mode}_checkpoint_s": saved_s})
        work.check(f"{mode}: held-out rows were answered", found[mode].result["evaluation"])
    same = found["sync"].weights == found["async"].weights
    work.check("both modes export the same weights", same)
    saving.modes(work)


def synchronisations(work: Work) -> None:
    """Count where the host waits for the device within steps."""
    work.need_gpu("PyTorch reports synchronisations of CUDA alone")
    import torch

    from pipeline.timing.recorder import StepRecorder

    counts: collections.Counter[tuple[int, str]] = collections.Counter()
    step_now = [-1]
    start_step = StepRecorder.start_step

    def start(self: StepRecorder, step: int) -> None:
        step_now[0] = step
        start_step(self, step)

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            counts[step_now[0], _place()] += 1

    kind = open_tiny(KIND, work.shared)
    batchings: list[dict[str, Any]] = [{"kind": "shuffled"}, {"kind": "packed", "max_tokens": 512}]
    for batching in batchings:
        counts.clear()
        config = train_config(kind, work, num_steps=6, deterministic=False, batching=batching)
        with warnings.catch_warnings(), mock.patch.object(StepRecorder, "start_step", start):
            warnings.simplefilter("always")
            warnings.showwarning = note
            torch.cuda.set_sync_debug_mode("warn")
            try:
                train(work.folder / batching["kind"], config)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        by_place: collections.Counter[str] = collections.Counter()
        for (step, place), number in counts.items():
            if step in _STEADY_STEPS:
                by_place[place] += number
        name = batching["kind"]
        work.note(**{f"{name}_in_two_steps": by_place.total()})
        # The wait for the verdict is one for an event, which this mode does not report.
        work.check(f"{name}: loop and model read nothing", not by_place, dict(by_place))


def _place() -> str:
    """Return the innermost line of the package that is being run."""
    for frame in reversed(traceback.extract_stack()):
        _, found, rest = frame.filename.partition("/pipeline/")
        if found:
            return f"pipeline/{rest}:{frame.lineno}"
    return "elsewhere"
