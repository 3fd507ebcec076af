"""The loop's laps (clock, model and other ranks are stand-ins), and what it does to gradients."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.tensor import DTensor

from pipeline.timing.recorder import StepCounts, StepRecorder
from pipeline.train import loop, stage
from pipeline.train.checkpoint_files import list_checkpoints
from pipeline.train.device import Scaling, Workplace
from pipeline.train.loop import Agreement
from pipeline.train.strategies import Single
from slurm_jobs.shared.configs.training_parts import ScalerConfig
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.timings import read_steps, steps_path
from tests.pipeline.clock import stop_the_clock

COUNTS = StepCounts(
    epoch=0,
    num_microbatches=1,
    num_samples=1,
    num_tokens=8,
    num_padding_tokens=0,
    num_supervised_tokens=4,
    num_images=1,
    num_image_tokens=4,
)
WAIT_S = 0.03
CPU = Workplace(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


@pytest.fixture
def setup(tmp_path, monkeypatch):
    clock = stop_the_clock(monkeypatch)

    def sums_after_a_wait(values):
        clock.advance(WAIT_S)
        return values

    def sum_after_a_wait(_tensor):
        clock.advance(WAIT_S)

    def agree_after_a_wait(num_steps_done):
        clock.advance(WAIT_S)
        is_last = num_steps_done == 2
        return Agreement(save=is_last, must_end=is_last, stop=False, upload_ended=False)

    boundary = SimpleNamespace(agree=agree_after_a_wait)
    monkeypatch.setattr(loop, "Boundary", lambda *_: boundary)
    monkeypatch.setattr(loop, "make_counter", lambda *_: lambda _batches: COUNTS)
    monkeypatch.setattr(loop, "_accumulate", lambda *_, is_first: torch.zeros(()))
    monkeypatch.setattr(loop, "_clip", lambda _: torch.zeros(()))
    monkeypatch.setattr(loop, "_update", lambda *_: 1e-3)
    batch = SimpleNamespace(keys=(), learned=SimpleNamespace(num_by_level=(4,)))
    with StepRecorder(tmp_path, 0, {}) as recorder:
        yield SimpleNamespace(
            current=SimpleNamespace(
                config=SimpleNamespace(checkpoint=None),
                num_steps=2,
                first_step=0,
                dataset=SimpleNamespace(info=None),
            ),
            made=SimpleNamespace(
                spread=SimpleNamespace(bare=None), scaling=Scaling(ScalerConfig(), CPU)
            ),
            batches=iter([[batch], [batch]]),
            workplace=CPU,
            ranks=SimpleNamespace(
                sums=sums_after_a_wait, sum_on_device=sum_after_a_wait, num_ranks=2
            ),
            saver=SimpleNamespace(save=lambda *_, **__: None, has_ended_here=None),
            recorder=recorder,
            look=None,
            report=lambda *_: None,
            clock=clock,
        )


def test_all_waits_for_other_ranks_are_timed_apart_and_nothing_of_them_is_unexplained(
    setup, tmp_path
):
    loop.run_steps(setup, 0)
    setup.recorder.flush()
    steps = read_steps(steps_path(tmp_path, 0)).steps
    assert steps["rank_wait_s"] == pytest.approx([3 * WAIT_S] * 2)
    assert steps["rank_wait_data_s"] == pytest.approx([WAIT_S] * 2)  # the first of them
    assert steps["step_s"] == pytest.approx([3 * WAIT_S] * 2)
    assert steps["other_s"].tolist() == [0, 0]


def test_a_rank_that_is_alone_waits_for_nobody_whatever_its_meetings_take(setup, tmp_path):
    setup.ranks.num_ranks = 1
    loop.run_steps(setup, 0)
    setup.recorder.flush()
    steps = read_steps(steps_path(tmp_path, 0)).steps
    assert steps["rank_wait_s"].tolist() == steps["rank_wait_data_s"].tolist() == [0, 0]
    assert steps["other_s"] == pytest.approx([3 * WAIT_S] * 2)


def test_counting_what_a_batch_has_to_teach_is_no_wait_for_other_ranks(
    setup, tmp_path, monkeypatch
):
    learned = loop._learned

    def counted_slowly(batches):
        setup.clock.advance(1.0)
        return learned(batches)

    monkeypatch.setattr(loop, "_learned", counted_slowly)
    loop.run_steps(setup, 0)
    setup.recorder.flush()
    steps = read_steps(steps_path(tmp_path, 0)).steps
    assert steps["other_s"] == pytest.approx([1.0] * 2)
    assert steps["rank_wait_s"] == pytest.approx([3 * WAIT_S] * 2)


def test_loss_that_is_not_finite_names_step_and_samples(make_train_run):
    run = make_train_run(optimizer={"learning_rate": 1e20, "grad_clip_norm": None})
    told = r"loss of step \d+ is nan .*samples of this rank: \w+.*"
    with pytest.raises(StageError, match=f"{told}, or lower optimizer.learning_rate$"):
        run.run_here()
    with pytest.raises(StageError, match=f"{told}learning_rate, or set `precision: fp32`$"):
        run.run_here(precision="bf16")


def poison_gradients(patch, *, step):
    """The loss of that step stays as it is; one parameter's gradient becomes NaN."""
    numbers = itertools.count()
    accumulate = loop._accumulate

    def accumulate_poison(setup, *args, is_first):
        loss = accumulate(setup, *args, is_first=is_first)
        if next(numbers) == step:
            next(setup.made.spread.bare.parameters()).grad.mul_(math.nan)
        return loss

    patch.setattr(loop, "_accumulate", accumulate_poison)


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
def test_gradient_that_is_not_finite_is_never_applied_nor_saved(
    make_train_run, monkeypatch, strategy
):
    config = {"strategy": strategy, "checkpoint": {"every_min": None, "every_steps": 1}}
    sound, poisoned = make_train_run(), make_train_run()
    sound.run_here(**config)
    with monkeypatch.context() as patch:
        poison_gradients(patch, step=3)
        with pytest.raises(StageError, match=r"step 3 is \d.* gradient norm nan; samples .*: \w+"):
            poisoned.run_here(**config)
    assert list_checkpoints(poisoned.output_dir / "checkpoints")[0][0] == 3
    assert poisoned.run_here(**config)["resumed_from_step"] == 3
    assert poisoned.weights() == sound.weights()


def watch_applied_norms(patch):
    """The norms of all gradients together, one for each update, as the optimizer meets them."""
    applied, update = [], loop._update

    def watched(setup, *args):
        gradients = [p.grad for p in setup.made.spread.bare.parameters() if p.grad is not None]
        full = [g.full_tensor() if isinstance(g, DTensor) else g for g in gradients]
        applied.append(float(torch.nn.utils.get_total_norm(full)))
        return update(setup, *args)

    patch.setattr(loop, "_update", watched)
    return applied


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
@pytest.mark.parametrize("limit", [0.25, 1e6, None])
def test_gradients_are_clipped_to_the_limit_and_the_norm_before_is_recorded(
    make_train_run, monkeypatch, strategy, limit
):
    applied = watch_applied_norms(monkeypatch)
    run = make_train_run(optimizer={"grad_clip_norm": limit})
    run.run_here(strategy=strategy)
    recorded = read_steps(steps_path(run.timing_dir(), 0)).steps["grad_norm"]
    assert len(recorded) == 6
    assert recorded.min() > 0.25, "a limit that no gradient reaches proves nothing"
    expected = recorded if limit is None else recorded.clip(max=limit)
    assert applied == pytest.approx(expected.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("place", "name", "words"),
    [
        (Single, "spread", "while the model was built .*`strategy: fsdp2`"),
        (stage, "export_model", "while the model was exported .*resume on devices with more"),
        (stage, "evaluate", "while held-out rows were answered .*evaluate.batch_size"),
    ],
)
def test_memory_that_runs_out_outside_the_steps_names_place_and_remedy(
    make_train_run, monkeypatch, place, name, words
):
    def run_out(*_args, **_options):
        message = "CUDA out of memory. Tried to allocate 2.00 GiB"
        raise torch.OutOfMemoryError(message)

    monkeypatch.setattr(place, name, run_out)
    run = make_train_run()
    manifest = run.demo_data / "render/heldout.jsonl"
    run.config["evaluate"] = {"manifest": str(manifest)}
    with pytest.raises(StageConfigError, match=rf"rank 0 ran out of memory {words}"):
        run.run_here(strategy="single")


def test_a_gpu_that_runs_out_of_memory_is_told_with_step_and_remedy(make_train_run, monkeypatch):
    numbers = itertools.count()
    accumulate = loop._accumulate

    def run_out(*args, is_first):
        if next(numbers) == 2:
            message = "CUDA out of memory. Tried to allocate 2.00 GiB"
            raise torch.OutOfMemoryError(message)
        return accumulate(*args, is_first=is_first)

    monkeypatch.setattr(loop, "_accumulate", run_out)
    words = (
        r"rank 0 ran out of memory in step 2 \(CUDA .* 2.00 GiB\); set `num_microbatches: auto`, "
        r"or num_microbatches to more than 1; .*`activation_checkpointing: true`"
    )
    with pytest.raises(StageConfigError, match=words):
        make_train_run().run_here()
