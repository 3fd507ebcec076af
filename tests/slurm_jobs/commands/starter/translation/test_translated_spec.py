"""`init --from FILE`: the spec means what the file of another tool means, and passes its check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from tests.slurm_jobs.cli.command import command
from tests.slurm_jobs.cli.specs.begun import Init, begin, fake_slurm, init
from tests.slurm_jobs.commands.starter.test_first_spec import qwen

__all__ = ["begin", "command", "init"]

LLAMA_FACTORY = """
model_name_or_path: vlm
image_max_pixels: 262144
video_max_pixels: 16384
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: pictures,far,more
val_size: 0.1
eval_steps: 50
template: qwen2_vl
cutoff_len: 1024
output_dir: saves/pictures/lora
logging_steps: 10
save_steps: 500
plot_loss: true
report_to: none
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
no_such_key: 1
"""
AXOLOTL = """
base_model: vlm
processor_type: AutoProcessor
skip_prepare_dataset: true
datasets:
  - path: data/rows.json
    type: chat_template
val_set_size: 0.0
output_dir: ./outputs/out
sequence_len: 4096
gradient_accumulation_steps: 4
micro_batch_size: 1
num_epochs: 1
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 0.00002
bf16: auto
gradient_checkpointing: true
warmup_ratio: 0.1
wandb_project:
"""
SWIFT = """
nproc_per_node=4
MAX_PIXELS=602112 \\
NPROC_PER_NODE=$nproc_per_node \\
swift sft \\
    --model vlm \\
    --dataset data/rows.json#20 \\
    --tuner_type lora \\
    --torch_dtype bfloat16 \\
    --gradient_accumulation_steps $(expr 16 / $nproc_per_node) \\
    --learning_rate 1e-4 \\
    --max_length 2048 \\
    --output_dir output \\
    --attn_impl flash_attn \\
    --packing true \\
    --num_train_epochs 100 \\
    --deepspeed zero2
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    qwen(tmp_path / "vlm")
    folder = tmp_path / "data"
    (folder / "pictures").mkdir(parents=True)
    rows = []
    for number in range(40):
        Image.new("RGB", (64, 64)).save(folder / f"pictures/{number}.png")
        turns = [
            {"role": "user", "content": "<image>What is it?"},
            {"role": "assistant", "content": "A square."},
        ]
        rows.append({"messages": turns, "images": [f"pictures/{number}.png"]})
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "more.json").write_text(json.dumps(rows[:20]))
    sets = {
        "pictures": {
            "file_name": "rows.json",
            "formatting": "sharegpt",
            "columns": {"messages": "messages", "images": "images"},
            "tags": {"role_tag": "role", "content_tag": "content"},
        },
        "more": {"file_name": "more.json", "num_samples": 80},
        "far": {"hf_hub_url": "some/set"},
    }
    (folder / "dataset_info.json").write_text(json.dumps(sets))


def spec_of(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configs of preprocess and train of a spec."""
    spec = yaml.safe_load(Path(f"configs/{name}.yaml").read_text())
    return spec["stages"]["preprocess"]["config"], spec["stages"]["train"]["config"]


def test_a_lora_of_llama_factory(init: Init) -> None:
    Path("train.yaml").write_text(LLAMA_FACTORY)
    out = init("--from", "train.yaml").out
    assert "configs/pictures-lora.yaml: no problems found" in out
    assert "data set pictures of" in out
    preprocess, train = spec_of("pictures-lora")
    assert preprocess == {
        "manifest": [
            {
                "path": "../data/rows.json",
                "name": "pictures",
                "columns": {"messages": "messages", "image": "images"},
            },
            {"path": "../data/more.json", "num_samples": 80},
        ],
        "processor": "../vlm",
        "max_tokens": 1024,
        "image_pixels": {"max": 262144},
        "max_reject_share": 0.01,
        "too_long": "truncate_text",
        "held_out": {"share": 0.1},
    }
    assert train["evaluate"] == {"every_steps": 50}
    assert train["adapters"] == {"rank": 8, "alpha": 16, "targets": ["language"]}
    assert (train["global_batch_size"], train["num_microbatches"], train["num_epochs"]) == (8, 4, 3)
    assert train["batching"] == {"kind": "grouped"}
    assert train["schedule"] == {"kind": "onecycle", "warmup_share": 0.1}
    assert train["optimizer"] == {"learning_rate": 1e-4, "weight_decay": 0.0, "beta2": 0.999}
    assert train["checkpoint"] == {"every_min": 15, "every_steps": 500}
    assert train["activation_checkpointing"] is True
    keys = Path("configs/pictures-lora-keys.md").read_text()
    for key in yaml.safe_load(LLAMA_FACTORY):
        assert f"| `{key}` |" in keys
    assert "| `no_such_key` | 1 | unknown |" in keys
    assert "\nleft out: far (not here; `hf download some/set " in out
    assert "# held_out" not in Path("configs/pictures-lora.yaml").read_text()


@pytest.mark.parametrize(
    ("sets", "most", "proportions", "fate"),
    [
        ("pictures,more", 30, [{"num_samples": 30}, {"num_samples": 30}], "translated"),
        ("more", 100, [{"num_samples": 80}], "kept"),
        (
            "pictures,more\nmix_strategy: interleave_over\ninterleave_probs: 0.75,0.25",
            30,
            [{"weight": 0.75}, {"weight": 0.25}],
            "without",
        ),
    ],
)
def test_each_data_set_has_its_share_and_at_most_so_many_rows(
    init: Init, sets: str, most: int, proportions: list[dict[str, Any]], fate: str
) -> None:
    text = LLAMA_FACTORY.replace("pictures,far,more", sets)
    Path("train.yaml").write_text(f"{text}max_samples: {most}\n")
    result = json.loads(init("--from", "train.yaml", "--json").out)
    assert result["problems"] == []
    manifest = spec_of("pictures-lora")[0]["manifest"]
    others = ("path", "name", "columns")
    found = [{key: each[key] for key in each if key not in others} for each in manifest]
    assert found == proportions
    assert [row["fate"] for row in result["keys"] if row["key"] == "max_samples"] == [fate]


def test_held_out_rows_of_several_files_are_evaluated(init: Init) -> None:
    text = LLAMA_FACTORY.replace("val_size: 0.1", "eval_dataset: more,data/rows.json")
    text = text.replace("far,more", "far")
    Path("train.yaml").write_text(text.replace("pictures,far", "pictures"))
    init("--from", "train.yaml")
    preprocess, train = spec_of("pictures-lora")
    assert preprocess["manifest"] == "../data/rows.json"
    assert train["evaluate"] == {
        "manifest": [{"path": "../data/more.json"}, {"path": "../data/rows.json"}],
        "every_steps": 50,
    }


def test_a_full_training_of_axolotl(init: Init) -> None:
    Path("train.yml").write_text(AXOLOTL)
    out = init("--from", "train.yml").out
    assert "configs/finetune.yaml: no problems found" in out
    preprocess, train = spec_of("finetune")
    assert (preprocess["manifest"], preprocess["max_tokens"]) == ("../data/rows.json", 4096)
    assert not {"adapters", "quantize", "learn"}.intersection(train)
    assert train["optimizer"]["learning_rate"] == pytest.approx(2e-5)
    text = Path("configs/finetune.yaml").read_text()
    assert text.startswith("# Fine-tunes a vision-language model as train.yml of axolotl does.\n")
    assert "# samples per step, over all GPUs" in text


def test_columns_that_a_file_names_are_named_and_accounted_for(init: Init) -> None:
    path = "path: data/rows.json"
    Path("train.yml").write_text(AXOLOTL.replace(path, f"{path}\n    field_messages: messages"))
    result = json.loads(init("--from", "train.yml", "--json").out)
    assert spec_of("finetune")[0]["columns"] == {"messages": "messages"}
    (text,) = [row["text"] for row in result["keys"] if row["key"].endswith("field_messages")]
    assert text == "`columns: {messages: messages}`"


def test_a_packed_training_of_ms_swift_on_a_cluster(
    begin: Init, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path / "bin", monkeypatch)
    Path("train.sh").write_text(SWIFT)
    result = json.loads(begin("--from", "train.sh", "--name", "mine", "--json").out)
    assert result["problems"] == []
    preprocess, train = spec_of("mine")
    assert preprocess["manifest"] == [{"path": "../data/rows.json", "num_samples": 20}]
    assert train["batching"] == {"kind": "packed", "max_tokens": 2048}
    assert (train["global_batch_size"], train["num_lanes"]) == (16, 16)
    assert train["trackers"] == {"use": ["tensorboard"]}
    fates = {row["key"]: row["fate"] for row in result["keys"]}
    assert fates["NPROC_PER_NODE"] == "translated"
    assert fates["weight_decay"] == "default"
    assert "unknown" not in fates.values()


def test_options_win_over_the_file(init: Init, tmp_path: Path) -> None:
    Path("train.yaml").write_text(LLAMA_FACTORY)
    (tmp_path / "data/rows.json").rename(tmp_path / "mine.json")
    (tmp_path / "data/pictures").rename(tmp_path / "pictures")
    qwen(tmp_path / "other")
    init("--from", "train.yaml", "--data", "mine.json", "--model", "other", "--name", "ours")
    preprocess, train = spec_of("ours")
    assert preprocess["held_out"] == {"share": 0.1}
    assert preprocess["manifest"] == "../mine.json"
    assert (preprocess["processor"], train["model"]["path"]) == ("../other", "../other")


def test_data_of_a_hub_leave_a_spec_that_waits_for_them(init: Init) -> None:
    text = AXOLOTL.replace("data/rows.json", "some/pictures-set")
    Path("train.yml").write_text(text)
    ended = init("--from", "train.yml", code=2)
    assert "get them with `hf download some/pictures-set --repo-type dataset" in ended.out
    assert "../data/pictures-set" in Path("configs/finetune.yaml").read_text()
    assert "pictures-set" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "gone.yaml"), "gone.yaml: No such file"),
        (("--from", "train.yaml", "--recipe", "demo"), "--from is for your own data"),
    ],
)
def test_a_file_that_cannot_be_used_writes_nothing(
    init: Init, words: tuple[str, ...], message: str
) -> None:
    Path("train.yaml").write_text(LLAMA_FACTORY)
    assert message in init(*words, code=2).err
    assert not Path("configs").exists()
