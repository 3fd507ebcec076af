from pathlib import Path

import pytest

from slurm_jobs.base.shipped_files import shipped_path
from tests.slurm_jobs.spec.conftest import Check


def spec(config: str = "") -> str:
    return f"""\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{nodes: 2, tasks_per_node: 4, gpus_per_node: 4}}
    config:
      dataset: .
      num_steps: 10
      strategy: accelerate
      accelerate: {{config: accelerate.yaml}}
      {config}
"""


@pytest.mark.parametrize("name", ["a100-fsdp2", "v100-fsdp2", "ddp"])
def test_each_template_passes(check: Check, name: str) -> None:
    text = shipped_path("templates", "accelerate", f"{name}.yaml").read_text()
    assert check(spec(), accelerate__yaml=text) == []


NO_YAML = "not YAML as `accelerate config` writes it"


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        ("{distributed_type: MULTI_GPU, num_processes: 4}", "", "4, and the stage has 8 ranks"),
        ("{distributed_type: MULTI_GPU, num_machines: 1}", "", "1, and the stage has 2 nodes"),
        ("\ufeff{distributed_type: MULTI_GPU, num_machines: 1}", "", "1, and the stage has 2 nod"),
        ("{distributed_type: MULTI_GPU, prec: 1}", "", "accelerate knows no key `prec`"),
        ("just words", "", "no keys and values"),
        ("a: [", "", NO_YAML),
        (b"\xff\xfe\x00", "", NO_YAML),
        (
            "{distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}",
            *("device: cpu", "on which accelerate shards nothing"),
        ),
    ],
)
def test_what_the_file_says_otherwise_is_a_problem_at_the_line_of_the_spec(
    check: Check, tmp_path: Path, text: str | bytes, config: str, message: str
) -> None:
    (tmp_path / "accelerate.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (line,) = check(spec(config))
    assert line.startswith("11:28: stages.train.config.accelerate.config: accelerate.yaml: ")
    assert message in line
