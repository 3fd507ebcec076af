"""A spec of one training, and the config of such a stage."""

from slurm_jobs.spec.builtin_configs import config_class

TRAIN = config_class("train")
SPEC = """\
name: a
cluster: local
stages:
  train:
    run: train
    resources: {tasks_per_node: 2}
    config:
      dataset: .
      num_steps: 10
      device: cpu
"""
