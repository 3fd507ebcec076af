"""Specs with a matrix."""

from typing import Any

from slurm_jobs.spec.matrix import expand_matrix
from slurm_jobs.spec.yaml.reader import read_yaml

HEAD = "name: m\ncluster: local\nstages:\n"
SWEEP = (
    HEAD
    + """\
  data: {shell: x}
  train:
    shell: x
    after: data
    matrix: {task: [a, b], nodes: [1, 2]}
    resources: {nodes: "${matrix.nodes}"}
    environment: {NODES: "${matrix.nodes}"}
    config: {nodes: "${matrix.nodes}", name: "${matrix.task} on ${matrix.nodes}"}
  test: {shell: x, after: train, matrix: train, config: {of: "${train.output_dir}/m"}}
  report: {run: report, after: {test: afterany}}
"""
)


def stages(text: str) -> dict[str, Any]:
    document, _ = expand_matrix(read_yaml(text, "f"))
    assert document.problems == ()
    found: dict[str, Any] = document.value["stages"]
    return found
