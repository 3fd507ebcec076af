"""Specs of one training, with phases or without."""

CPUS = "tasks_per_node: 2"


def train(resources: str = "", config: str = "") -> str:
    return f"""\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{{resources}}}
    config: {{dataset: ., num_steps: 10, {config}}}
"""


def phases(second: str) -> str:
    return f"""\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {{tasks_per_node: 2}}
    config:
      dataset: .
      device: cpu
      global_batch_size: 16
      num_microbatches: 2
      phases:
        - {{name: a, num_steps: 2}}
        - {{name: b, num_steps: 2, {second}}}
"""
