"""The starter's text with a user's data and cluster in it means what it should."""

from __future__ import annotations

import yaml

from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.commands.starter.spec_changes import own_changes, with_download
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace, Model, PartitionRoom
from slurm_jobs.spec.overrides.text_edits import edit_text

TEXT = shipped_path("templates", "starter", "finetune.yaml").read_text()
DATA = Data(manifest="d.jsonl", num_rows=9000)
FOLDER = Model(name="models/m", is_on_hub=False, weights_gb=6.0)
HUB = Model(name="Some/Model-7B", is_on_hub=True, weights_gb=14.0)
CPU = PartitionRoom(partition="cpu", num_nodes=2, cpus=8, mem_gb=16)
GPU = PartitionRoom(
    partition="gpu", num_nodes=2, cpus=30, mem_gb=100, gpu_type="v100", gpus=2, max_time_min=600
)


def place(gpu: PartitionRoom | None = GPU) -> JobPlace:
    return JobPlace(name="here", is_slurm=True, cpu=CPU, gpu=gpu)


def spec_of(data: Data, model: Model, where: JobPlace) -> dict:
    text = with_download(TEXT) if model.is_on_hub else TEXT
    return yaml.safe_load(
        edit_text(text, own_changes("mine", "clusters/here.yaml", data, model, where))
    )


def test_all_gpus_of_one_node_are_taken_within_its_cores_and_time() -> None:
    spec = spec_of(DATA, FOLDER, place())
    train = spec["stages"]["train"]
    assert (spec["name"], spec["cluster"]) == ("mine", "clusters/here.yaml")
    assert train["resources"] == {
        "nodes": 1, "tasks_per_node": 2, "cpus_per_task": 8, "gpus_per_node": 2, "gpu": "v100",
        "mem_gb": 27, "timeout_min": 600,
    }  # fmt: skip
    assert train["config"]["model"] == {"type": "hugging_face", "path": "models/m"}
    assert "quantize" not in train["config"]
    assert "strategy" not in train["config"]
    assert spec["stages"]["preprocess"]["array"] == {"num_slices": 5, "max_running": 5}
    assert "models" not in spec["stages"]


def test_a_model_of_the_hub_is_downloaded_first_and_a_large_one_packed() -> None:
    spec = spec_of(DATA, HUB, place())
    stages = spec["stages"]
    assert next(iter(stages)) == "models"
    assert stages["models"]["config"] == {"models": {"vlm": "Some/Model-7B"}}
    assert stages["preprocess"]["after"] == "models"
    assert stages["preprocess"]["config"]["processor"] == "${models.output_dir}/vlm"
    assert stages["train"]["config"]["model"]["path"] == "${models.output_dir}/vlm"
    assert stages["train"]["config"]["quantize"] == {"kind": "nf4", "double": True}
    assert "code" not in spec


def test_without_gpus_one_rank_trains_on_cpus() -> None:
    train = spec_of(DATA, FOLDER, place(gpu=None))["stages"]["train"]
    assert train["config"]["device"] == "cpu"
    assert train["config"]["strategy"] == "single"
    assert "gpus_per_node" not in train["resources"]


def test_each_gpu_has_as_many_samples_of_a_step() -> None:
    three = PartitionRoom(partition="gpu", num_nodes=1, cpus=9, mem_gb=64, gpus=3)
    train = spec_of(DATA, FOLDER, place(three))["stages"]["train"]
    assert (train["config"]["global_batch_size"], train["config"]["num_lanes"]) == (33, 3)
    assert "gpu" not in train["resources"]


def test_images_elsewhere_are_named() -> None:
    data = Data(manifest="d.csv", image_root="../pics")
    config = spec_of(data, FOLDER, place())["stages"]["preprocess"]["config"]
    assert config["image_root"] == "../pics"


def test_comments_of_the_starter_stay() -> None:
    text = edit_text(TEXT, own_changes("mine", "c.yaml", DATA, FOLDER, place()))
    comments = [line.partition("#")[2] for line in TEXT.splitlines() if "#" in line]
    assert [c for c in comments if c not in text] == []
