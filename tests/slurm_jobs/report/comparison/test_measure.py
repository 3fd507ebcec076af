"""What is read of a run's training: speeds without what is set apart."""

import json
import shutil

import numpy as np
import pytest

from slurm_jobs.report.compare import unlike_within
from slurm_jobs.report.run_measures import measure
from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.timings import ReadingPacker, read_steps, spans_path, steps_path, system_path
from tests.slurm_jobs.report.comparison.fabricated import fabricated


def steps_of(paths, attempt, rank):
    return read_steps(steps_path(paths.timing_dir("train", 0, attempt), rank)).steps


def test_speed_is_of_the_steps_that_count_without_checkpoints_and_evaluation(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    found = measure(paths.run_dir)
    ranks = [steps_of(paths, 1, rank)[5:] for rank in range(2)]
    apart_s = [r["checkpoint_s"].sum() + r["evaluation_s"].sum() for r in ranks]
    seconds = min(float(r["step_s"].sum()) - a for r, a in zip(ranks, apart_s, strict=True))
    tokens = sum(int(r["num_tokens"].sum()) for r in ranks)
    assert found.tokens_per_s == pytest.approx(tokens / seconds, rel=1e-5)
    assert found.num_steps == 395
    assert found.samples_per_step == 64
    assert found.apart_s["checkpoint_s"] == pytest.approx(8 * 0.9, rel=1e-5)
    assert found.apart_s["evaluation_s"] == pytest.approx(2 * 2.5, rel=1e-5)
    assert len(found.token_stretches) == 10
    assert found.settings["train.config.batch_size"] == "32"
    assert found.settings["stage preprocess.config.too_long"] == "drop"
    assert not any("report" in name for name in found.settings)


def test_checkpoints_saved_more_often_change_no_speed(tmp_path):
    plain = fabricated(tmp_path / "plain", stopped_at=None)
    often = fabricated(tmp_path / "often", stopped_at=None)
    for rank in range(2):
        path = steps_path(often.timing_dir("train", 0, 1), rank)
        header, _, body = path.read_bytes().partition(b"\n")
        steps = np.frombuffer(body, steps_of(often, 1, rank).dtype).copy()
        steps["checkpoint_s"] += 0.5
        steps["step_s"] += 0.5
        path.write_bytes(header + b"\n" + steps.tobytes())
    first, second = measure(plain.run_dir), measure(often.run_dir)
    assert second.tokens_per_s == pytest.approx(first.tokens_per_s, rel=1e-4)
    assert second.apart_s["checkpoint_s"] > first.apart_s["checkpoint_s"] + 100


def test_hours_of_ranks_are_those_of_the_steps_where_a_clock_was_set_back(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    right = measure(paths.run_dir).rank_hours
    for rank in range(2):
        path = steps_path(paths.timing_dir("train", 0, 1), rank)
        header, _, body = path.read_bytes().partition(b"\n")
        steps = np.frombuffer(body, steps_of(paths, 1, rank).dtype).copy()
        steps["start_unix_s"][200:] -= 36_000
        path.write_bytes(header + b"\n" + steps.tobytes())
    assert 0 < measure(paths.run_dir).rank_hours == pytest.approx(right)


def test_steps_that_compiled_are_left_out_whole(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    path = steps_path(paths.timing_dir("train", 0, 1), 1)
    header, _, body = path.read_bytes().partition(b"\n")
    steps = np.frombuffer(body, steps_of(paths, 1, 1).dtype).copy()
    steps["compile_s"][[7, 9]] = 3.0
    steps["step_s"][[7, 9]] += 60.0
    path.write_bytes(header + b"\n" + steps.tobytes())
    found = measure(paths.run_dir)
    assert (found.num_steps, found.num_compiled_steps) == (393, 2)


def test_profiled_steps_are_left_out_whole_and_repeats_may_differ_in_them(tmp_path):
    plain, paths = (fabricated(tmp_path / name, stopped_at=None) for name in ("plain", "profiled"))
    spec = json.loads(paths.resolved_spec.read_text())
    spec["stages"]["train"]["config"]["profile"] = {"steps": [20, 29]}
    paths.resolved_spec.write_text(json.dumps(spec))
    for rank in range(2):
        path = steps_path(paths.timing_dir("train", 0, 1), rank)
        header, _, body = path.read_bytes().partition(b"\n")
        steps = np.frombuffer(body, steps_of(paths, 1, rank).dtype).copy()
        steps["forward_s"][19:30] += 5.0
        steps["step_s"][19:30] += 5.0
        steps["start_unix_s"][20:30] += 5.0 * np.arange(1, 11)
        steps["start_unix_s"][30:] += 55.0
        path.write_bytes(header + b"\n" + steps.tobytes())
        write = {"name": "profile_write", "start_unix_s": float(steps["start_unix_s"][30]) - 1e-3,
                 "duration_s": 1e-3, "first_step": 20, "num_steps": 10}  # fmt: skip
        spans = spans_path(paths.timing_dir("train", 0, 1), rank)
        spans.write_text(spans.read_text() + json.dumps(write) + "\n")
    first, second = measure(plain.run_dir), measure(paths.run_dir)
    assert (second.num_steps, second.num_profiled_steps) == (384, 11)
    assert second.tokens_per_s == pytest.approx(first.tokens_per_s, rel=5e-3)
    assert unlike_within([first, second]) == []
    assert "the memory has the profiler's records in it" in second.notes[0]


def test_repeated_steps_count_once(tmp_path):
    found = measure(fabricated(tmp_path / "run").run_dir)
    assert found.num_steps == 400 - 2 * 5


def test_cards_and_their_memory_come_from_the_nodes_readings(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    assert measure(paths.run_dir).memory_capacity_bytes is None
    for node, size in enumerate((16e9, 15e9)):
        gpus = [{"uuid": "a", "name": "Tesla V100", "memory_bytes": size}]
        header = ReadingPacker(1).header({"gpus": gpus})
        system_path(paths.timing_dir("train", 0, 1), node).write_bytes(header)
    system_path(paths.timing_dir("train", 0, 1), 2).write_text("damaged")
    found = measure(paths.run_dir)
    assert found.cards == ("Tesla V100",)
    assert found.memory_capacity_bytes == 15e9


def test_a_warm_up_longer_than_the_run_is_refused(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    with pytest.raises(InputError, match="no step of all its ranks is left after the first 1000"):
        measure(paths.run_dir, warmup_steps=1000)


def test_a_stage_without_records_is_refused_with_those_that_have_some(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    with pytest.raises(InputError, match="no step records of stage other; it has those of train"):
        measure(paths.run_dir, stage="other")


def test_a_run_without_a_training_is_refused_with_the_command_to_type(tmp_path):
    paths = fabricated(tmp_path / "my run", stopped_at=None)
    shutil.rmtree(paths.timing_stage_dir("train"))
    with pytest.raises(InputError) as refused:
        measure(paths.run_dir)
    assert str(refused.value).endswith(
        f"no step records of any training\nnext: slurm-jobs status '{paths.run_dir}'"
    )


def test_several_trainings_must_be_told_apart(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    spec = json.loads(paths.resolved_spec.read_text())
    spec["stages"]["again"] = {**spec["stages"]["train"], "after": {}}
    paths.resolved_spec.write_text(json.dumps(spec))
    paths.timing_stage_dir("train").rename(paths.timing_stage_dir("again"))
    assert measure(paths.run_dir).stage == "again"
    folder = paths.timing_dir("train", 0, 1)
    folder.mkdir(parents=True)
    for path in paths.timing_dir("again", 0, 1).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"several trainings \(again, train\); name one"):
        measure(paths.run_dir)
    assert measure(paths.run_dir, stage="train").stage == "train"


def test_phases_have_their_shares_of_the_measured_steps(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    phases = [{"name": "projector", "first_step": 0}, {"name": "lora", "first_step": 202}]
    for path in paths.timing_dir("train", 0, 1).glob("rank-*.steps"):
        line, _, rest = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        header["metadata"]["phases"] = phases
        path.write_bytes(json.dumps(header).encode() + b"\n" + rest)
    found = measure(paths.run_dir).phase_shares
    assert found == pytest.approx({"projector": 197 / 395, "lora": 198 / 395})


def test_settings_of_phases_are_told_one_by_one(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    spec = json.loads(paths.resolved_spec.read_text())
    spec["stages"]["train"]["config"]["phases"] = [{"name": "a", "num_steps": 3, "schedule": None}]
    paths.resolved_spec.write_text(json.dumps(spec))
    settings = measure(paths.run_dir).settings
    assert settings["train.config.phases[0].num_steps"] == "3"
    assert "train.config.phases[0].schedule" not in settings


def test_steps_of_an_earlier_config_are_left_out_and_told(tmp_path):
    paths = fabricated(tmp_path / "run")
    path = paths.attempt("train", 0, 1)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "fingerprint": "earlier"}))
    found = measure(paths.run_dir)
    assert found.num_steps == 400 - 150 - 5
    num_first = len(read_steps(steps_path(paths.timing_dir("train", 0, 1), 0)).steps)
    told = f"{num_first} steps of an earlier config or code left out"
    assert any(told in note for note in found.notes), found.notes


def test_what_holds_for_all_stages_is_a_setting_too(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    spec = json.loads(paths.resolved_spec.read_text())
    spec |= {"environment": {"NCCL_P2P_DISABLE": "1", "WANDB_API_KEY": "hunter22"}, "limit": 500}
    paths.resolved_spec.write_text(json.dumps(spec))
    profile = {"node_local_dir": "/scratch", "slurm": {"qos": "long"}}
    paths.spec_origin.write_text(json.dumps({"profile": profile}))
    settings = measure(paths.run_dir).settings
    assert settings["run.environment.NCCL_P2P_DISABLE"] == "1"
    assert settings["run.limit"] == "500"
    assert settings["cluster.slurm.qos"] == "long"
    assert "hunter22" not in str(settings)


def test_what_could_not_be_read_is_told(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    path = steps_path(paths.timing_dir("train", 0, 1), 1)
    data = bytearray(path.read_bytes())
    steps = steps_of(paths, 1, 1)
    begin = data.index(b"\n") + 1 + 300 * steps.dtype.itemsize
    data[begin : begin + steps.dtype.itemsize] = bytes(steps.dtype.itemsize)
    path.write_bytes(bytes(data))
    found = measure(paths.run_dir)
    assert found.num_steps == 295
    assert any("left out, from the first damaged one on" in note for note in found.notes)
    assert any("unequal numbers of steps" in note for note in found.notes)


def test_records_that_count_no_samples_are_refused(tmp_path):
    paths = fabricated(tmp_path / "run", stopped_at=None)
    for rank in range(2):
        path = steps_path(paths.timing_dir("train", 0, 1), rank)
        steps = steps_of(paths, 1, rank).copy()
        steps["num_samples"] = 0
        path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n" + steps.tobytes())
    with pytest.raises(InputError, match="its records count no samples"):
        measure(paths.run_dir)
