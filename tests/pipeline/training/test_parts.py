"""The small parts of training that need no processes."""

import re

import pytest
import torch
from safetensors.torch import save_file

from pipeline.training import checkpoint_files as files
from pipeline.training.boundary import Boundary
from pipeline.training.device import choose_precision, threads_per_rank
from pipeline.training.evaluate import Generation, summarise
from pipeline.training.export import check_weights
from pipeline.training.fingerprint import describe_changes, fingerprint, lasting_config
from pipeline.training.optimizer import parameter_groups
from pipeline.training.schedule import learning_rate_at
from pipeline.training.strategy import assert_strategy
from slurm_jobs.common.errors import StageConfigError, StageError
from slurm_jobs.common.stage_config.train import (
    CheckpointConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
)


def rates(kind, warmup_share=0.1, num_steps=100):
    schedule = ScheduleConfig(kind=kind, warmup_share=warmup_share)
    return [
        learning_rate_at(step, num_steps=num_steps, peak=1.0, schedule=schedule)
        for step in range(num_steps)
    ]


def test_learning_rate_rises_to_its_peak_and_falls():
    values = rates("onecycle")
    assert values[0] == pytest.approx(0.1)
    assert values[9] == values[10] == 1.0
    assert values[10:] == sorted(values[10:], reverse=True)
    assert values[-1] < 0.002


@pytest.mark.parametrize(("kind", "last"), [("cosine", 0.1), ("constant", 1.0)])
def test_schedules_end_where_they_say(kind, last):
    assert rates(kind, warmup_share=0.0)[-1] == pytest.approx(last, abs=1e-3)


class FakeRanks:
    """A group in which the other rank has nothing to add but `others`."""

    def __init__(self, rank=0, others=(0.0, 0.0, 0.0)):
        self.rank, self.others = rank, others

    def sums(self, values):
        return [mine + other for mine, other in zip(values, self.others, strict=True)]


def boundary(config, *, ranks=None, stop=False, clock=lambda: 0.0):
    return Boundary(
        ranks or FakeRanks(), config, 10, is_stop_requested=lambda: stop, read_clock_s=clock
    )


def test_stop_of_another_rank_saves_and_stops_here():
    config = CheckpointConfig(every_min=None)
    verdict = boundary(config, ranks=FakeRanks(others=(1.5, 1.0, 0.0))).agree(3, 2.0)
    assert (verdict.loss_sum, verdict.save, verdict.stop) == (3.5, True, True)


def test_last_step_saves_and_does_not_stop():
    verdict = boundary(CheckpointConfig(every_min=None), stop=True).agree(10, 0.0)
    assert (verdict.save, verdict.stop) == (True, False)


def test_only_the_clock_of_rank_0_counts():
    times = iter([0.0, 30.0, 61.0, 61.0, 70.0])
    asked = boundary(CheckpointConfig(every_min=1.0), clock=lambda: next(times))
    assert [asked.agree(step, 0.0).save for step in (1, 2, 3)] == [False, True, False]
    late = boundary(CheckpointConfig(every_min=1.0), ranks=FakeRanks(rank=1), clock=lambda: 0.0)
    assert not late.agree(1, 0.0).save


def test_checkpoints_by_steps():
    asked = boundary(CheckpointConfig(every_min=None, every_steps=3))
    assert [step for step in range(1, 10) if asked.agree(step, 0.0).save] == [3, 6, 9]


@pytest.mark.parametrize(
    ("asked", "capability", "given"),
    [
        ("auto", None, "fp32"),
        ("auto", (7, 0), "fp32"),
        ("auto", (8, 0), "bf16"),
        ("bf16", None, "bf16"),
        ("fp32", (9, 0), "fp32"),
    ],
)
def test_precision_follows_the_card(asked, capability, given):
    assert choose_precision(asked, capability) == given


def test_bf16_on_a_v100_is_refused():
    with pytest.raises(StageConfigError, match=r"capability 7\.0.*precision: fp32"):
        choose_precision("bf16", (7, 0))


def test_threads_are_what_slurm_gave_else_a_share_of_the_node():
    assert threads_per_rank("3", num_cpus=64, num_local_ranks=4) == 3
    assert threads_per_rank(None, num_cpus=64, num_local_ranks=4) == 16
    assert threads_per_rank(None, num_cpus=2, num_local_ranks=4) == 1


def test_vectors_and_positions_have_no_weight_decay():
    model = torch.nn.ModuleDict(
        {"linear": torch.nn.Linear(2, 2), "position_embedding": torch.nn.Embedding(2, 2)}
    )
    decayed, plain = parameter_groups(model, 0.1)
    assert [p is model["linear"].weight for p in decayed["params"]] == [True]
    assert len(plain["params"]) == 2
    assert plain["weight_decay"] == 0.0


def test_fallback_from_sharding_is_an_error():
    with pytest.raises(RuntimeError, match="fsdp2 did not take effect: weight is a Parameter"):
        assert_strategy(torch.nn.Linear(2, 2), "fsdp2")


def test_fingerprint_ignores_what_does_not_change_the_learning():
    one = lasting_config(TrainConfig(num_steps=5), 5)
    other = lasting_config(TrainConfig(num_steps=5, device="cpu", log_every_steps=1), 5)
    assert fingerprint(one) == fingerprint(other)
    changed = TrainConfig(num_steps=5, optimizer=OptimizerConfig(learning_rate=1.0))
    assert describe_changes(one, lasting_config(changed, 5)) == [
        "optimizer.learning_rate: 0.0001 then, 1.0 now"
    ]


def test_epochs_and_the_steps_they_come_to_are_one_config():
    assert lasting_config(TrainConfig(num_epochs=2), 5) == lasting_config(
        TrainConfig(num_steps=5), 5
    )


def test_unfinished_checkpoints_are_never_listed(tmp_path):
    for name in ("step-00000004", ".step-00000006.1.tmp", "step-00000010", ".unreadable-step-1"):
        (tmp_path / name).mkdir()
    assert [step for step, _ in files.list_checkpoints(tmp_path)] == [10, 4]
    files.remove_leftovers(tmp_path)
    assert not (tmp_path / ".step-00000006.1.tmp").exists()
    files.keep_newest(tmp_path, 1)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000010"]


def test_every_file_is_checked_by_one_rank():
    facts = {str(i): files.FileFacts(num_bytes=i, xxh3="") for i in range(5)}
    shares = [files.share_of_files(facts, rank, 2) for rank in (0, 1)]
    assert sorted([*shares[0], *shares[1]]) == sorted(facts)


def test_damage_is_named(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    facts = {"a": files.hash_file(tmp_path / "a"), "b": files.FileFacts(num_bytes=1, xxh3="")}
    (tmp_path / "a").write_bytes(b"abd")
    first, second = files.damaged_files(tmp_path, facts)
    assert first.startswith("a: 3 bytes")
    assert second == "b: No such file or directory"


def test_dropped_and_changed_tensors_are_found_after_saving(tmp_path):
    weights = {"a": torch.ones(2), "b": torch.ones(2), "c": torch.tensor([float("nan")])}
    save_file({"a": torch.ones(2), "b": torch.zeros(2), "c": weights["c"]}, tmp_path / "w")
    with pytest.raises(StageError, match=re.escape("(missing: d; different: b)")):
        check_weights(tmp_path / "w", weights, {"a", "b", "c", "d"})


def test_summary_counts_exact_answers_and_distinct_references():
    def generation(row, reference, text):
        return Generation(
            row=row, key="", reference=reference, generated=text, exact=reference == text
        )

    rows = [generation(0, "a", "a"), generation(1, "a", "b"), generation(2, "c", "c")]
    summary = summarise(rows, num_rejected=1)
    assert summary["exact_match"] == pytest.approx(2 / 3)
    assert (summary["num_distinct_references"], summary["num_rejected"]) == (2, 1)
    assert summarise([], num_rejected=0)["exact_match"] is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give exactly one"),
        ({"num_steps": 1, "num_epochs": 1.0}, "give exactly one"),
        ({"num_steps": 0}, "num_steps is 0"),
        ({"num_steps": 1, "num_lanes": 7}, "num_lanes is 7: give a divisor of global_batch_size"),
    ],
)
def test_config_refuses_by_name_value_and_remedy(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)
