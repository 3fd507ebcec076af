"""What the train stage's config refuses."""

import pytest

from slurm_jobs.commands.read_spec import load
from slurm_jobs.shared.configs.model_parts import AdaptersConfig, QuantizeConfig
from slurm_jobs.shared.configs.train import LevelConfig, TrainConfig
from slurm_jobs.shared.configs.training_parts import (
    CompileConfig,
    OptimizerConfig,
    ScalerConfig,
    ShardingConfig,
)
from slurm_jobs.shared.errors import SpecError

QLORA = {"num_steps": 1, "adapters": AdaptersConfig(), "quantize": QuantizeConfig()}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give exactly one"),
        ({"num_steps": 1, "num_epochs": 1.0}, "give exactly one"),
        ({"num_steps": 0}, "num_steps is 0"),
        ({"num_steps": 1, "seed": -1}, "seed is -1"),
        ({"num_steps": 1, "num_lanes": 7}, "num_lanes is 7: give a divisor of global_batch_size"),
        (
            {"num_steps": 1, "strategy": "ddp", "sharding": ShardingConfig(cpu_offload=True)},
            "strategy is ddp, which does not shard: leave sharding out",
        ),
        (
            {"num_steps": 1, "precision": "bf16", "scaler": ScalerConfig(max_skips=1)},
            "precision is bf16, which scales no loss: leave scaler out",
        ),
        (
            {"num_steps": 1, "quantize": QuantizeConfig()},
            "quantize is given without adapters: weights in 4 bits cannot learn; give adapters",
        ),
        (
            {**QLORA, "learn": ("adapters", "language")},
            "learn names language, and quantize has the language model in 4 bits",
        ),
        (
            {**QLORA, "quantize": QuantizeConfig(storage="bf16"), "precision": "fp16"},
            r"bf16, precision is fp16 and strategy is fsdp2: .* `quantize: \{storage: uint8",
        ),
        (
            {**QLORA, "compile": CompileConfig()},
            "compile and quantize are given: .*; leave one of the two out",
        ),
        (
            {"num_steps": 1, "device": "cpu", "optimizer": OptimizerConfig(kind="paged_adamw")},
            "optimizer.kind is paged_adamw and device is cpu: .* set `kind: adamw`",
        ),
        (
            {
                "num_steps": 1,
                "optimizer": OptimizerConfig(kind="paged_adamw_8bit"),
                "sharding": ShardingConfig(cpu_offload=True),
            },
            "paged_adamw_8bit and sharding.cpu_offload is true: .* set `kind: adamw_8bit`",
        ),
        ({"num_steps": 1, "num_microbatches": 0}, "num_microbatches is 0; allowed is >= 1"),
        ({"num_steps": 1, "memory_share": 1.1}, "memory_share is 1.1; allowed is > 0 and <= 1"),
        (
            {"num_steps": 1, "num_microbatches": "auto", "reader": "webdataset"},
            "num_microbatches is auto and reader is webdataset: .* give num_microbatches as",
        ),
    ],
)
def test_config_refuses_by_name_value_and_remedy(values, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)


@pytest.mark.parametrize("towers", [(), ("language", "language")])
def test_compiling_nothing_or_something_twice_is_refused(towers):
    with pytest.raises(ValueError, match=r"compile.towers is \[.*\]: give `vision`, `language`"):
        CompileConfig(towers=towers)


@pytest.mark.parametrize("classes", [("red ", "green"), ("red", "red\n", "green")])
def test_classes_with_white_space_around_them_are_refused(classes):
    """No answer that is told by its class would be exact, and one class might be two."""
    with pytest.raises(ValueError, match=r"level colour: the class 'red.+' has .*; write 'red'"):
        LevelConfig(name="colour", head="classes", classes=classes)


def test_storage_that_fits_what_auto_may_mean_is_left_to_the_ranks():
    TrainConfig(**{**QLORA, "quantize": QuantizeConfig(storage="bf16")})


def test_names_on_a_hub_are_refused_before_anything_is_queued(tmp_path):
    (tmp_path / "m.csv").write_text("image_path,text\na.png,a\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: a\ncluster: local\nstages:\n"
        "  p: {run: preprocess, config: {manifest: m.csv, processor: org/processor}}\n"
        "  c: {run: consolidate, after: p}\n"
        "  t:\n    run: train\n    after: c\n"
        "    config: {num_steps: 1, strategy: single, device: cpu, model: {path: org/model}}\n"
    )
    with pytest.raises(SpecError) as raised:
        load(spec)
    assert [problem.message.partition(" (")[0] for problem in raised.value.problems] == [
        f"stages.p.config.processor: nothing at {tmp_path}/org/processor",
        f"stages.t.config.model.path: nothing at {tmp_path}/org/model",
    ]
