"""What a rank loads before it begins: each rank does, from a file system that they share."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_training_without_adapters_and_4_bits_loads_neither_peft_nor_bitsandbytes() -> None:
    program = "import sys, pipeline.train.stage; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = {name.partition(".")[0] for name in loaded.split()}
    assert "torch" in packages
    assert not packages & {"peft", "bitsandbytes"}
