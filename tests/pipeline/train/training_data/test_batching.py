"""Rows of several samples, batches of like lengths: what a training makes of `batching`."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.dataset import open_dataset
from pipeline.data.order import BatchLayout, shuffled_order
from pipeline.data.reading_plan import ReadingPlan
from pipeline.train.training_data.batching import batch_layout, rows_per_step, steps_to_make
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from tests.contexts import make_context
from tests.pipeline.train.conftest import parent

PACKED = {"kind": "packed", "max_tokens": 160}


@pytest.fixture(scope="module")
def packed(make_train_run):
    run = make_train_run(batching=PACKED, checkpoint={"every_min": None, "every_steps": 3})
    run.run_here()
    return run


@pytest.fixture
def own_data(demo_data, tmp_path):
    """A copy of the data set, so that packs of one test are not another's."""
    ignored = shutil.ignore_patterns("packs")
    shutil.copytree(demo_data / "consolidate", tmp_path / "set", ignore=ignored)
    return tmp_path / "set"


def test_packed_rows_hold_every_sample_once_an_epoch_and_little_padding(make_train_run):
    run = make_train_run(
        batching={"kind": "packed", "max_tokens": 200},
        num_steps=None,
        num_epochs=4,
        global_batch_size=20,
        num_lanes=1,
    )
    run.run_here()
    steps = run.steps()
    assert steps["num_samples"].sum() == 160  # rows of four epochs fill whole steps here
    padding, tokens = steps["num_padding_tokens"].sum(), steps["num_tokens"].sum()
    assert padding / (padding + tokens) < 0.08  # 1,117 tokens in 6 rows of 200


def test_packed_training_is_the_same_on_one_rank_and_on_two(make_train_run, packed):
    run = make_train_run(batching=PACKED)
    run.run(num_ranks=2)
    assert run.losses() == pytest.approx(packed.losses(), abs=2e-4)
    by_rank = [run.steps(rank)["num_samples"] for rank in (0, 1)]
    assert (by_rank[0] + by_rank[1]).tolist() == packed.steps()["num_samples"].tolist()


def test_packed_training_resumes_as_if_it_had_not_stopped(make_train_run, packed):
    run = make_train_run(batching=PACKED).take(packed, forget_after=3)
    assert run.run_here()["resumed_from_step"] == 3
    assert run.losses() == packed.losses()[3:]
    assert run.weights() == packed.weights()


def test_grouped_batches_pad_less_than_shuffled_ones(make_train_run):
    shares = {}
    for kind in ("shuffled", "grouped"):
        run = make_train_run(batching={"kind": kind}, num_steps=5, num_microbatches=2)
        run.run_here()
        steps = run.steps()
        assert steps["num_samples"].tolist() == [8] * 5
        shares[kind] = steps["num_padding_tokens"].sum()
    assert shares["grouped"] < shares["shuffled"]


def test_packs_are_stored_and_reused_and_rebuilt_after_damage(
    make_train_run, own_data, packed, caplog
):
    def losses():
        run = make_train_run(batching=PACKED, dataset=str(own_data))
        run.run_here()
        return run.losses()

    assert losses() == packed.losses()
    (file,) = (own_data / "packs").iterdir()
    content, written_ns = file.read_bytes(), file.stat().st_mtime_ns
    assert losses() == packed.losses()
    assert list((own_data / "packs").iterdir()) == [file]
    assert file.stat().st_mtime_ns == written_ns
    file.write_bytes(content[:-8])
    assert losses() == packed.losses()
    assert file.read_bytes() == content
    assert "cannot be used" in caplog.text


def test_packs_of_a_data_set_that_may_not_be_written_are_kept_in_the_run(make_train_run, own_data):
    (own_data / "packs").write_text("no folder")  # what no permission can hide from root
    run = make_train_run(batching=PACKED, dataset=str(own_data))
    run.run_here()
    assert len(list((run.output_dir / "packs").iterdir())) == 1


def test_sample_longer_than_a_row_fails_before_the_first_step(make_train_run, demo_data):
    longest = int(open_dataset(demo_data / "consolidate").index.num_tokens.max())
    run = make_train_run(batching={"kind": "packed", "max_tokens": longest - 1})
    with pytest.raises(
        StageConfigError,
        match=f"the largest has {longest} .*sample .*"
        f"--set stages.STAGE.config.batching.max_tokens={longest}",
    ):
        run.run_here()


@pytest.mark.slow
def test_augmented_pictures_change_the_losses_and_repeat_after_a_resume(make_train_run, plain):
    augment = {"mirror_share": 0.5, "brightness": 0.4}
    run = make_train_run(augment=augment, checkpoint={"every_min": None, "every_steps": 3})
    run.run_here()
    assert run.losses() != plain.losses()
    run.forget(3)
    run.run_here()
    assert run.losses() == run.losses(1)[3:]


@pytest.mark.slow
def test_streamed_training_on_two_ranks_stays_in_step_with_unequal_shards(
    make_train_run, demo_data
):
    from pipeline.consolidate.stage import run as consolidate

    root = demo_data.parent / "streamed"
    parents = (parent("preprocess", demo_data),)
    config = {"samples_per_shard": 15}
    consolidate(config, make_context("consolidate", root, parents=parents, config=config))
    run = make_train_run(
        dataset=str(root / "consolidate"), reader="webdataset", stream={"shuffle_buffer": 4}
    )
    run.run(num_ranks=2)
    assert run.steps(0)["num_samples"].tolist() == [4] * 6
    assert run.steps(1)["num_samples"].tolist() == [4] * 6


@given(
    num_samples=st.integers(1, 10**6),
    share=st.floats(0.01, 1),
    global_batch_size=st.integers(1, 64),
    num_lanes=st.sampled_from([1, 2, 8]),
)
def test_rows_of_a_step_are_near_the_requested_samples(
    num_samples, share, global_batch_size, num_lanes
):
    num_packs = max(1, int(num_samples * share))
    config = TrainConfig(
        num_steps=1, global_batch_size=global_batch_size * num_lanes, num_lanes=num_lanes
    )
    rows = rows_per_step(config, num_samples=num_samples, num_packs=num_packs)
    assert rows % num_lanes == 0
    assert rows >= num_lanes
    wanted = config.global_batch_size * num_packs / num_samples
    assert abs(rows - max(num_lanes, wanted)) <= num_lanes / 2 + 1e-6


def test_rows_that_do_not_divide_are_refused_with_the_requested_samples():
    config = TrainConfig(num_steps=1, global_batch_size=64, num_lanes=8, num_microbatches=4)
    rows = rows_per_step(config, num_samples=10_000, num_packs=1000)
    with pytest.raises(StageConfigError, match=r"64 samples of a step are 8 rows.*is 4: .*\(64\)"):
        batch_layout(config, 8, rows)


@pytest.mark.parametrize(
    ("num_epochs", "num_packs", "global_batch_size", "num_steps"),
    [(0.29, 100, 1, 29), (1.15, 200, 2, 115), (1, 100, 8, 12), (2.3, 100, 10, 23)],
)
def test_no_step_of_the_epochs_is_lost_to_rounding(
    num_epochs, num_packs, global_batch_size, num_steps
):
    sizes = {"global_batch_size": global_batch_size, "num_lanes": 1}
    config = TrainConfig(num_epochs=num_epochs, **sizes)
    assert steps_to_make(config, plan_of(num_packs, global_batch_size)) == num_steps


def test_epochs_of_less_than_a_step_are_refused():
    with pytest.raises(StageConfigError, match="5 samples of it are less than one step of 8"):
        steps_to_make(TrainConfig(num_epochs=1, global_batch_size=8), plan_of(5, 8))


def plan_of(num_packs: int, global_batch_size: int) -> ReadingPlan:
    layout = BatchLayout(
        global_batch_size=global_batch_size, num_lanes=1, num_ranks=1, num_microbatches=1
    )
    return ReadingPlan(layout=layout, num_packs=num_packs, order=shuffled_order(num_packs, 0))
