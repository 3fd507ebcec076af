"""The loop: its laps, copies ahead, and gradients."""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch.distributed.tensor import DTensor

from pipeline.data.batch import Batch, ModelNeeds
from pipeline.data.loader import BatchReader
from pipeline.data.prefetch import Prefetcher
from pipeline.timing.recorder import StepCounts, StepRecorder
from pipeline.train import loop, trainer
from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.checkpoints.save_decision import Agreement
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.loop import CopyAhead
from pipeline.train.optimizer.loss_scaling import LossScaling
from pipeline.train.training_data.batches import Copied
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import ScalerConfig
from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from tests.pipeline.clock import stop_the_clock
from tests.pipeline.train.optimizer.test_loss_scaling import poison_step

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
CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


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
    losses = loop._StepLosses(share=torch.zeros(()), by_manifest=None)
    monkeypatch.setattr(loop, "_accumulate", lambda *_, is_first: losses)
    monkeypatch.setattr(loop, "_clip", lambda _: torch.zeros(()))
    monkeypatch.setattr(loop, "_update", lambda *_: 1e-3)
    batch = SimpleNamespace(keys=(), learned=SimpleNamespace(num_by_group=(4,)))
    with StepRecorder(tmp_path, 0, {}) as recorder:
        yield SimpleNamespace(
            current=SimpleNamespace(
                config=SimpleNamespace(checkpoint=None),
                num_steps=2,
                first_step=0,
                dataset=SimpleNamespace(info=None),
            ),
            model=SimpleNamespace(
                parallel=SimpleNamespace(bare=None), scaling=LossScaling(ScalerConfig(), CPU)
            ),
            batches=iter([[batch], [batch]]),
            rank_device=CPU,
            ranks=SimpleNamespace(
                sums=sums_after_a_wait, sum_on_device=sum_after_a_wait, num_ranks=2
            ),
            saver=SimpleNamespace(save=lambda *_, **__: None, has_ended_here=None),
            recorder=recorder,
            evaluate_held_out=None,
            report=lambda *_: None,
            clock=clock,
        )


def laps(setup, tmp_path):
    loop.run_steps(setup, 0)
    setup.recorder.flush()
    return read_steps(steps_path(tmp_path, 0)).steps


def test_all_waits_for_other_ranks_are_timed_apart_and_fully_explained(setup, tmp_path):
    steps = laps(setup, tmp_path)
    assert steps["rank_wait_s"] == pytest.approx([3 * WAIT_S] * 2)
    assert steps["rank_wait_data_s"] == pytest.approx([WAIT_S] * 2)  # the first of them
    assert steps["step_s"] == pytest.approx([3 * WAIT_S] * 2)
    assert steps["other_s"].tolist() == [0, 0]


def test_a_single_rank_records_no_wait_for_other_ranks(setup, tmp_path):
    setup.ranks.num_ranks = 1
    steps = laps(setup, tmp_path)
    assert steps["rank_wait_s"].tolist() == steps["rank_wait_data_s"].tolist() == [0, 0]
    assert steps["other_s"] == pytest.approx([3 * WAIT_S] * 2)


def test_counting_what_a_batch_has_to_teach_is_no_wait_for_other_ranks(
    setup, tmp_path, monkeypatch
):
    num_targets = loop._num_targets

    def counted_slowly(batches):
        setup.clock.advance(1.0)
        return num_targets(batches)

    monkeypatch.setattr(loop, "_num_targets", counted_slowly)
    steps = laps(setup, tmp_path)
    assert steps["other_s"] == pytest.approx([1.0] * 2)
    assert steps["rank_wait_s"] == pytest.approx([3 * WAIT_S] * 2)


def test_loss_that_is_not_finite_names_step_and_samples(make_train_run):
    run = make_train_run(optimizer={"learning_rate": 1e20, "grad_clip_norm": None})
    told = r"loss of step \d+ is nan .*samples of this rank: \w+.*"
    with pytest.raises(StageError, match=f"{told}, or lower optimizer.learning_rate$"):
        run.run_here()
    with pytest.raises(StageError, match=f"{told}learning_rate, or set `precision: fp32`$"):
        run.run_here(precision="bf16")


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
def test_gradient_that_is_not_finite_is_never_applied_nor_saved(
    make_train_run, plain, monkeypatch, strategy
):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 1})
    with monkeypatch.context() as patch:
        poison_step(patch, 3, loss=False, factor=math.nan)
        with pytest.raises(StageError, match=r"step 3 is \d.* gradient norm nan; samples .*: \w+"):
            run.run_here(strategy=strategy)
    assert list_checkpoints(run.output_dir / "checkpoints")[0][0] == 3
    assert run.run_here(strategy=strategy)["resumed_from_step"] == 3
    assert run.weights() == plain.weights()


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp2"])
@pytest.mark.parametrize("limit", [0.25, 1e6, None])
def test_gradients_are_clipped_and_the_norm_before_is_recorded(
    make_train_run, monkeypatch, strategy, limit
):
    applied, update = [], loop._update

    def watched(setup, *args):
        """Note the norm of all gradients together, as the optimizer meets them."""
        gradients = [p.grad for p in setup.model.parallel.bare.parameters() if p.grad is not None]
        full = [g.full_tensor() if isinstance(g, DTensor) else g for g in gradients]
        applied.append(float(torch.nn.utils.get_total_norm(full)))
        return update(setup, *args)

    monkeypatch.setattr(loop, "_update", watched)
    run = make_train_run(optimizer={"grad_clip_norm": limit}, num_steps=3)
    run.run_here(strategy=strategy)
    recorded = run.steps()["grad_norm"]
    assert recorded.min() > 0.25, "a limit that no gradient reaches proves nothing"
    expected = recorded if limit is None else recorded.clip(max=limit)
    assert applied == pytest.approx(expected.tolist(), rel=1e-4)
    assert len(applied) == 3


class Stream:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self._told = name, told

    def wait_stream(self, other: Stream) -> None:
        self._told.append(f"{self.name} waits for {other.name}")


class Device:
    """The part of `torch.cuda` that is used."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._current = Stream("compute", self.told)

    def Stream(self) -> Stream:  # noqa: N802 - torch's name
        return Stream("copies", self.told)

    def current_stream(self) -> Stream:
        return self._current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before


@pytest.fixture
def device(monkeypatch) -> Device:
    device = Device()

    def copy(batch, _device):
        device.told.append(f"{batch.name} in {device.current_stream().name}")
        return f"copy of {batch.name}"

    monkeypatch.setattr(loop.torch, "get_device_module", lambda _: device)
    monkeypatch.setattr(loop, "copy_batch", copy)
    return device


def batch(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name)


def test_the_model_waits_for_a_copy_that_was_begun_and_it_is_made_once(device):
    copies, first, second = CopyAhead(CPU.device), batch("A"), batch("B")
    assert copies.take(first) == "copy of A"
    copies.begin(second)
    assert copies.take(second) == "copy of B"
    wait = "compute waits for copies"
    assert device.told == [
        *("copies waits for compute", "A in copies", wait),
        *("copies waits for compute", "B in copies", wait),
    ]


def test_an_unexpected_batch_and_a_repeated_one_are_copied_again(device):
    copies = CopyAhead(CPU.device)
    copies.begin(batch("A"))
    again = batch("A")  # of the same name, but another
    assert copies.take(again) == copies.take(again) == "copy of A"
    assert device.told.count("A in copies") == 3


def peek_when_it_is_ready(steps: Prefetcher) -> list[Batch] | None:
    concurrent.futures.wait(steps._waiting[0])
    return Prefetcher.peek(steps)


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_the_copy_of_the_next_microbatch_begins_before_this_one_is_learned(
    make_train_run, monkeypatch, num_microbatches
):
    told: list[str] = []
    losses_of = loop.losses_of

    class Noting(CopyAhead):
        def begin(self, batch: Batch) -> None:
            told.append("begin")
            super().begin(batch)

        def take(self, batch: Batch) -> Copied:
            told.append("take")
            return super().take(batch)

    def learn(model, inputs):
        told.append("learn")
        return losses_of(model, inputs)

    monkeypatch.setattr(loop, "CopyAhead", Noting)
    monkeypatch.setattr(loop, "losses_of", learn)
    monkeypatch.setattr(BatchReader, "peek", peek_when_it_is_ready)
    make_train_run().run_here(num_microbatches=num_microbatches, num_steps=3)
    of_each = ["take", "begin", "learn"]
    assert told == ["take", "begin", "begin", "learn", *(of_each * (3 * num_microbatches - 1))]


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("cuda:1", torch.device("cuda:1"))])
def test_reader_pins_memory_for_the_gpu_of_the_rank_and_for_no_cpu(monkeypatch, device, gpu):
    monkeypatch.setattr(trainer, "BatchReader", lambda dataset, plan, **options: options)
    dataset = SimpleNamespace(info=SimpleNamespace(manifests=None))
    training = SimpleNamespace(
        manifests=[],
        current=SimpleNamespace(config=TrainConfig(num_steps=1), dataset=dataset, plan=None),
        ranks=SimpleNamespace(rank=0, num_ranks=1),
        rank_device=SimpleNamespace(device=torch.device(device)),
        model=SimpleNamespace(needs=ModelNeeds()),
    )
    assert trainer.Trainer.make_reader(training, 0)["gpu"] == gpu
