"""One rank of the train stage whose device has the UUID in the environment variable GPU_UUID.

Usage: python shared_gpu_rank.py CONTEXTS_JSON RESULT_JSON
"""

import dataclasses
import os

import torch

from pipeline.train.device import device_facts
from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.preflight import preflight
from tests.pipeline.train import rank_process


def read_device(chosen: torch.device) -> DeviceFacts:
    return dataclasses.replace(device_facts.read_device(chosen), uuid=os.environ["GPU_UUID"])


if __name__ == "__main__":
    preflight.read_device = read_device
    raise SystemExit(rank_process.main())
