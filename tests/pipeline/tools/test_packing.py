"""The entry point, on a real data set with a real model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.tools import packing_timing
from pipeline.tools.arrangements import SETTINGS
from pipeline.tools.packing import run
from slurm_jobs.base.errors import StageConfigError, StageError
from tests.pipeline.models.tiny import write_dataset, write_tiny

SMALL: dict[str, Any] = {
    "vision": {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "patch_size": 16},
    "language": {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1},
}


@pytest.fixture(scope="module")
def dataset_dir(make_dataset: Callable[..., Path]) -> Path:
    return make_dataset(40)


def look(folder: Path, *, report: Any = lambda *_: None, **changes: Any) -> dict[str, Any]:
    config = {
        "device": "cpu",
        "model": SMALL,
        "num_steps": 1,
        "global_batch_size": 16,
        "batching": {"kind": "packed", "strategy": "bfd", "max_tokens": 256},
        **changes.pop("config", {}),
    }
    arguments = {
        "folder": str(folder),
        "config": config,
        "is_model_known": True,
        "num_ranks": 2,
        "num_rows": 3,
        "limit_s": None,
        "picture": None,
        **changes,
    }
    return run(arguments, report)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_every_way_is_counted_and_timed_and_nothing_is_written(dataset_dir):
    before = files_of(dataset_dir)
    told: list[tuple[int, int, str]] = []
    found = look(dataset_dir, limit_s=60, report=lambda *word: told.append(word))
    assert files_of(dataset_dir) == before
    assert [way["name"] for way in found["ways"]] == list(SETTINGS)
    assert [way["name"] for way in found["ways"] if way["is_configured"]] == ["bfd"]
    assert found["device"].startswith("CPU, ")
    assert found["notes"] == []
    for way in found["ways"]:
        assert way["problem"] is None
        assert 0 <= way["padding_share"] < 1
        assert way["slowest_over_mean"] >= 1
        mean_s = way["tokens_per_step"] / 2 / way["tokens_per_s"]
        assert way["step_s"] == pytest.approx(mean_s * way["slowest_work"] / way["mean_work"])
        seconds = 1000 * way["step_s"] / way["samples_per_step"]
        assert way["s_per_1000_samples"] == pytest.approx(seconds)
        assert len(way["rows"]) == 3
    assert {unit for _, _, unit in told} == {"ways packed", "steps timed"}
    assert (found["num_samples"], found["num_looked_at"], found["max_tokens"]) == (40, 40, 256)


def test_without_timing_no_step_is_taken(dataset_dir):
    found = look(dataset_dir)
    assert found["device"] is None
    assert all("step_s" not in way for way in found["ways"])


def test_without_a_model_work_is_tokens_and_nothing_is_timed(dataset_dir):
    found = look(dataset_dir, is_model_known=False, limit_s=60)
    assert found["device"] is None
    packed = [way for way in found["ways"] if "packed" in way["batching"]]
    assert [way["slowest_over_mean"] for way in packed] == [1.0] * len(packed)
    assert not any(way["is_configured"] for way in found["ways"])
    assert found["notes"] == [
        "no spec names a model: nothing is timed, and work is counted in tokens only"
    ]


def test_an_unfit_model_is_noted_and_the_rest_is_shown(dataset_dir):
    wrong = {**SMALL, "vision": {**SMALL["vision"], "patch_size": 12}}
    found = look(dataset_dir, limit_s=60, config={"model": wrong})
    (note,) = found["notes"]
    assert note.startswith(
        "nothing is timed, and work is counted in tokens only: model.vision.patch_size"
    )
    assert all("step_s" not in way and way["problem"] is None for way in found["ways"])


@pytest.mark.slow
def test_a_model_in_a_folder_has_its_sizes_and_other_weights(dataset_dir, tmp_path):
    from pipeline.data.dataset import open_dataset
    from pipeline.tools.packing_timing import make_bench
    from slurm_jobs.base.files import write_json_atomic
    from slurm_jobs.formats.config import build_config
    from slurm_jobs.formats.configs.train import TrainConfig

    config = {"device": "cpu", "model": SMALL, "num_steps": 1}
    bench = make_bench(build_config(TrainConfig, config), open_dataset(dataset_dir), dataset_dir)
    write_json_atomic(
        tmp_path / "config.json", bench.skeleton.config.to_json()
    )  # no weights beside it
    found = look(dataset_dir, limit_s=60, config={"model": {"path": str(tmp_path)}})
    assert found["notes"] == []
    assert all(way["step_s"] > 0 for way in found["ways"])


@pytest.mark.parametrize(
    "changes",
    [
        {"sharding": {"reshard_after_forward": False}},
        {"strategy": "accelerate", "accelerate": {"config": "fp16.yaml"}},
    ],
)
def test_a_training_on_many_ranks_is_timed_on_one(dataset_dir, tmp_path, changes, monkeypatch):
    from pipeline.data.dataset import open_dataset
    from pipeline.tools.packing_timing import make_bench
    from slurm_jobs.formats.config import build_config
    from slurm_jobs.formats.configs.train import TrainConfig

    monkeypatch.chdir(tmp_path)
    Path("fp16.yaml").write_text("{distributed_type: MULTI_GPU, mixed_precision: fp16}")
    config = {"device": "cpu", "model": SMALL, "num_steps": 1, **changes}
    bench = make_bench(build_config(TrainConfig, config), open_dataset(dataset_dir), dataset_dir)
    assert bench.config.strategy == "single"
    assert bench.rank_device.precision == ("fp16" if "accelerate" in changes else "fp32")


def test_a_missing_gpu_is_noted(dataset_dir, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    found = look(dataset_dir, limit_s=60, config={"device": "cuda"})
    assert found["device"].startswith("CPU, ")
    assert found["notes"][0].startswith("timed on the CPU, as there is no GPU here")


def test_too_little_time_is_noted(dataset_dir):
    found = look(dataset_dir, limit_s=0)
    late, cold = found["notes"]
    assert late.startswith("0 s were over before these were timed: constrained, ")
    assert cold.endswith("for lack of time: shuffled")
    assert [way["name"] for way in found["ways"] if "step_s" in way] == ["shuffled"]


def test_an_impossible_arrangement_is_reported_and_the_others_are_shown(dataset_dir):
    # Four rows for each rank, cut in four, do; of packs each has fewer.
    found = look(dataset_dir, config={"global_batch_size": 8, "num_microbatches": 4,
                                      "num_lanes": 2})  # fmt: skip
    problems = {way["name"]: way["problem"] for way in found["ways"]}
    assert problems["shuffled"] is None
    assert "must be a multiple" in problems["exact"]


def test_a_number_of_microbatches_that_is_to_be_found_is_one_here(dataset_dir):
    found = look(dataset_dir, config={"num_microbatches": "auto"})
    assert found["num_microbatches"] == 1
    assert any(note.startswith("num_microbatches is auto") for note in found["notes"])


def test_what_suits_no_way_is_an_error(dataset_dir):
    with pytest.raises(StageConfigError, match="num_lanes is 8 and the number of ranks is 3"):
        look(dataset_dir, num_ranks=3)


def test_an_unfinished_data_set_is_refused(tmp_path):
    with pytest.raises(StageError, match=r"dataset\.json: missing"):
        look(tmp_path)


@pytest.mark.parametrize("kind", ["smolvlm", "internvl", "qwen2_vl"])
def test_models_of_transformers_are_timed_on_the_data_that_they_take(kind, dataset_dir, tmp_path):
    folder, model_dir = write_dataset(kind, tmp_path), write_tiny(kind, tmp_path / "model")
    config = {
        "model": {"type": "hugging_face", "path": str(model_dir)},
        "global_batch_size": 2,
        "num_lanes": 2,
        "batching": {"kind": "packed", "max_tokens": 512},
    }
    found = look(folder, limit_s=60, config=config)
    assert found["notes"] == []
    assert all(way["tokens_per_s"] > 0 for way in found["ways"])
    refused = look(dataset_dir, limit_s=60, config=config)  # of SigLIP's pictures
    assert "nothing is timed" in refused["notes"][0]
    assert f"a model of type {kind} needs" in refused["notes"][0]


def test_model_that_memory_does_not_hold_is_not_built(dataset_dir, monkeypatch):
    monkeypatch.setattr(packing_timing, "available_memory_bytes", lambda: 10**5)
    found = look(dataset_dir, limit_s=60)
    assert found["notes"][0].startswith("nothing is timed: the 0.0 billion parameters of the model")
    assert not any("step_s" in way for way in found["ways"])
