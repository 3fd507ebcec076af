"""The train stage as a whole: real data, real processes over gloo, real signals and kills."""

import json
import shutil
import signal
import time

import numpy as np
import pytest
from safetensors.torch import load_file

from pipeline.models.small_vlm import SmallVLM
from pipeline.train.checkpoints import saver
from pipeline.train.checkpoints.checkpoint_folders import damaged_files, list_checkpoints
from pipeline.train.checkpoints.checkpoint_record import read_info
from slurm_jobs.base.errors import STOPPED_EXIT_CODE
from slurm_jobs.base.processes.stop_requests import RELAY_SIGNAL
from slurm_jobs.formats.timings.step_records import STEP_PHASES

NUM_STEPS = 120


@pytest.fixture(scope="module")
def long_config(heldout):
    return {
        "num_steps": NUM_STEPS,
        "sharding": {"unit_min_params": 0},  # every layer a unit of its own
        "checkpoint": {"every_min": None, "every_steps": 20},
        "evaluate": {"manifest": heldout, "max_new_tokens": 4},
    }


@pytest.fixture(scope="module")
def undisturbed(make_train_run, long_config):
    run = make_train_run(**long_config)
    return run, run.run()


@pytest.fixture(scope="module")
def disturbed(make_train_run, long_config):
    """Killed by SIGKILL in the middle, then stopped by SIGUSR2 on one rank, then finished."""
    run = make_train_run(**long_config)
    processes = run.start()
    wait_for_checkpoint(run, 20)
    for process in processes:
        process.kill()
    killed = run.finish(processes)
    left = list_checkpoints(run.output_dir / "checkpoints")
    whole = [not damaged_files(folder, read_info(folder).files) for _, folder in left]
    processes = run.start()
    wait_for_checkpoint(run, 40)
    processes[1].send_signal(RELAY_SIGNAL)
    stopped = run.finish(processes)
    saved_steps = [step for step, _ in list_checkpoints(run.output_dir / "checkpoints")]
    return run, (killed, whole), stopped, saved_steps, run.run()


def wait_for_checkpoint(run, at_least):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = list_checkpoints(run.output_dir / "checkpoints")
        if found and found[0][0] >= at_least:
            return
        time.sleep(0.005)
    pytest.fail(f"no checkpoint of step {at_least} within five minutes")


def test_result_says_what_ran(undisturbed):
    _, result = undisturbed
    assert result["num_steps"] == NUM_STEPS
    assert result["resumed_from_step"] == 0
    assert (result["strategy"], result["num_ranks"]) == ("fsdp2", 2)
    assert (result["precision"], result["attention"]) == ("fp32", "sdpa")
    assert result["preflight"]["attention"] == {"vision": "flash", "language": "flash"}
    assert result["tokens_per_s"] > 0
    assert result["stage_in_bytes"] == result["staging"]["staged_bytes"] > 0
    assert (result["staging"]["mode"], result["staging"]["reason"]) == ("beside", None)
    assert result["staging"]["num_damaged_shards"] == 0
    assert result["evaluation"]["num_samples"] == 6


def test_every_rank_records_every_step_and_its_phases_add_up(undisturbed):
    run, _ = undisturbed
    for rank in (0, 1):
        steps = run.steps(rank)
        assert steps["step"].tolist() == list(range(NUM_STEPS))
        total = sum(steps[name].astype(float) for name in STEP_PHASES)
        np.testing.assert_allclose(total, steps["step_s"], atol=1e-5)
        assert (steps["checkpoint_s"][19::20] > 0).all()
        names = [span["name"] for span in run.spans(rank=rank)]
        assert set(names) == {
            "startup_import", "process_group", "preflight", "stage_in", "model_build",
            "checkpoint_load", "checkpoint", "checkpoint_upload", "export", "heldout_check",
            "evaluation", "batch_plan", "closing", "leave_ranks",
        }  # fmt: skip
        assert names.index("preflight") < names.index("stage_in") < names.index("model_build")


def test_sharded_export_holds_every_tensor_loads_and_has_its_processor(undisturbed):
    run, result = undisturbed
    folder = run.output_dir / "model"
    model = SmallVLM.from_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == result["num_parameters"]
    assert load_file(folder / "model.safetensors").keys() == model.state_dict().keys()
    assert (folder / "tokenizer.json").is_file()
    lines = (run.output_dir / "generations.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(6))


def test_kept_checkpoints_are_the_newest(undisturbed):
    run, _ = undisturbed
    steps = [step for step, _ in list_checkpoints(run.output_dir / "checkpoints")]
    assert steps == [NUM_STEPS, NUM_STEPS - 20]


def test_killed_ranks_leave_only_whole_checkpoints(disturbed):
    _, (killed, whole), *_ = disturbed
    assert [code for code, _ in killed] == [-signal.SIGKILL] * 2
    assert whole
    assert all(whole)


def test_records_of_killed_ranks_reach_the_checkpoint_that_was_resumed(disturbed):
    run, *_ = disturbed
    (load,) = run.spans("checkpoint_load", attempt=2)
    for rank in (0, 1):
        steps = run.steps(rank, attempt=1)["step"].tolist()
        assert steps == list(range(len(steps)))
        assert len(steps) >= load["step"] >= 20


def test_stop_signal_on_one_rank_saves_on_both_at_the_same_step(disturbed):
    run, _, stopped, saved_steps, result = disturbed
    assert [code for code, _ in stopped] == [STOPPED_EXIT_CODE] * 2, stopped
    ends = [run.steps(rank, attempt=2)["step"][-1] for rank in (0, 1)]
    assert ends[0] == ends[1] == saved_steps[0] - 1
    assert result["resumed_from_step"] == saved_steps[0] < NUM_STEPS


def test_killed_and_resumed_weights_are_byte_identical(undisturbed, disturbed):
    assert disturbed[0].weights() == undisturbed[0].weights()


def test_two_sharded_ranks_learn_what_one_process_learns(make_train_run, undisturbed):
    run = make_train_run(num_steps=NUM_STEPS)
    run.run_here()
    two_ranks, one_process = undisturbed[0].losses(), run.losses()
    assert two_ranks[0] == pytest.approx(one_process[0], rel=1e-6)
    assert two_ranks == pytest.approx(one_process, rel=1e-2)
    # AdamW is blind to a wrong scale of the gradient; its norm is not.
    ranks, one = [undisturbed[0].steps(rank)[0] for rank in (0, 1)], run.steps()[0]
    counts = [int(step["num_supervised_tokens"]) for step in ranks]
    assert counts[0] != counts[1], "this proves nothing of ranks with equal numbers"
    assert sum(counts) == one["num_supervised_tokens"]
    assert [step["grad_norm"] for step in ranks] == pytest.approx([one["grad_norm"]] * 2, rel=1e-5)


def test_checkpoint_of_two_ranks_continues_on_one(make_train_run, undisturbed):
    run = make_train_run(num_steps=NUM_STEPS, checkpoint={"every_min": None, "every_steps": 20})
    step = NUM_STEPS - 20
    shutil.copytree(undisturbed[0].checkpoint(step), run.checkpoint(step))
    assert run.run_here()["resumed_from_step"] == step
    losses, expected = run.losses(), undisturbed[0].losses()[-20:]
    assert losses[0] == pytest.approx(expected[0], rel=1e-5)  # the same weights and samples
    assert losses == pytest.approx(expected, rel=1e-2)


def test_checkpoint_of_any_strategy_is_gone_on_from_by_any_other(make_train_run, plain):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 2, "keep_last": 9})
    for strategy, step in (("fsdp2", 0), ("ddp", 2), ("single", 4)):
        run.run_here(strategy=strategy, activation_checkpointing=strategy != "fsdp2")
        assert run.losses() == pytest.approx(plain.losses()[step:], rel=1e-5)
        run.forget(step + 2)


@pytest.mark.slow
def test_two_ranks_of_ddp_train_in_fp16_and_export_what_they_learned(make_train_run, plain):
    run = make_train_run(strategy="ddp", precision="fp16", scaler={"init_scale": 1024.0})
    result = run.run()
    assert (result["strategy"], result["precision"]) == ("ddp", "fp16")
    assert result["spread"]["model_class"] == "DistributedDataParallel"
    assert result["num_skipped_steps"] == 0
    assert run.losses() == pytest.approx(plain.losses(), rel=1e-3)
    files = [each.output_dir / "model/model.safetensors" for each in (run, plain)]
    assert load_file(files[0]).keys() == load_file(files[1]).keys()


@pytest.mark.parametrize("strategy", ["single", "fsdp2"])
def test_bf16_stays_close_to_fp32_and_exports_fp32(make_train_run, plain, strategy):
    run = make_train_run()
    result = run.run_here(strategy=strategy, precision="bf16")
    assert (result["precision"], result["strategy"]) == ("bf16", strategy)
    assert run.losses() == pytest.approx(plain.losses(), rel=0.02)
    assert run.losses() != plain.losses()
    weights = load_file(run.output_dir / "model/model.safetensors")
    assert {str(tensor.dtype) for tensor in weights.values()} == {"torch.float32"}


def test_run_after_completion_changes_nothing(make_train_run, plain):
    run = make_train_run().take(plain)
    inode = (run.output_dir / "model").stat().st_ino
    again = run.run_here()
    assert run.weights() == plain.weights()
    assert (run.output_dir / "model").stat().st_ino == inode
    assert again["resumed_from_step"] == again["num_steps"] == 6
    assert again["final_loss"] == plain.told["final_loss"]


@pytest.mark.slow
def test_leftovers_of_killed_exports_are_swept(make_train_run, plain):
    run = make_train_run().take(plain)
    output = run.output_dir
    for name in (".model.old.tmp", ".model.7.tmp"):
        shutil.copytree(output / "model", output / name)
    (output / "model/model.safetensors").write_bytes(b"of other weights")
    run.run_here()
    assert load_file(output / "model/model.safetensors")
    assert not list(output.glob(".model*"))


@pytest.mark.slow
def test_checkpoint_that_an_earlier_attempt_publishes_is_no_failure(
    make_train_run, plain, monkeypatch
):
    run = make_train_run(checkpoint={"every_min": None, "every_steps": 3})
    write_info = saver.write_info

    def lose_the_race(folder, info):
        write_info(folder, info)
        shutil.copytree(plain.checkpoint(info.step), run.checkpoint(info.step))

    monkeypatch.setattr(saver, "write_info", lose_the_race)
    assert run.run_here()["resumed_from_step"] == 0
    assert run.weights() == plain.weights()
    names = {path.name for path in (run.output_dir / "checkpoints").iterdir()}
    assert names == {"step-00000003", "step-00000006"}


def test_checkpoint_knows_the_step_and_the_data(plain):
    info = read_info(plain.checkpoint(6))
    assert (info.step, info.num_ranks, info.loss) == (6, 1, plain.told["final_loss"])
    assert len(info.dataset_fingerprint) == 32
