from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.shared.expand import shipped_path

Check = Callable[..., list[str]]

SPEC = """\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{{resources}}}
    config:
      dataset: .
      num_steps: 10
      strategy: accelerate
      accelerate: {{config: accelerate.yaml}}
      {config}
"""
GPUS = "nodes: 2, tasks_per_node: 4, gpus_per_node: 4"


def spec(config: str = "", resources: str = GPUS) -> str:
    return SPEC.format(resources=resources, config=config)


@pytest.mark.parametrize("name", ["a100-fsdp2", "v100-fsdp2", "ddp"])
def test_each_template_passes(check: Check, name: str) -> None:
    text = shipped_path("templates", "accelerate", f"{name}.yaml").read_text()
    assert check(spec(), accelerate__yaml=text) == []


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        ("{distributed_type: MULTI_GPU, num_processes: 4}", "", "4, and the stage has 8 ranks"),
        ("{distributed_type: MULTI_GPU, num_machines: 1}", "", "1, and the stage has 2 nodes"),
        (
            "\ufeff{distributed_type: MULTI_GPU, num_machines: 1}",
            "",
            "1, and the stage has 2 nodes",
        ),
        ("{distributed_type: MULTI_GPU, prec: 1}", "", "accelerate knows no key `prec`"),
        ("just words", "", "no keys and values"),
        ("a: [", "", "not YAML as `accelerate config` writes it"),
        (
            "{distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}",
            "device: cpu",
            "on which accelerate shards nothing",
        ),
    ],
)
def test_what_the_file_says_otherwise_is_told_at_our_line(
    check: Check, text: str, config: str, message: str
) -> None:
    (line,) = check(spec(config), accelerate__yaml=text)
    assert line.startswith("11:28: stages.train.config.accelerate.config: accelerate.yaml: ")
    assert message in line


def test_a_file_that_is_not_there_is_told_once(check: Check) -> None:
    (line,) = check(spec())
    assert line.startswith("11:28: stages.train.config.accelerate.config: nothing at ")


def test_a_file_that_is_no_text_is_told(check: Check, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_bytes(b"\xff\xfe\x00")
    (line,) = check(spec())
    assert "accelerate.yaml: not YAML as `accelerate config` writes it" in line
