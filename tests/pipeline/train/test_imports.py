"""Libraries that a rank loads."""

import subprocess
import sys

from tests.pipeline.train.conftest import ROOT


def test_peft_and_bitsandbytes_are_loaded_only_when_needed():
    program = "import sys, pipeline.train.stage; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packages = {name.partition(".")[0] for name in loaded.split()}
    assert "torch" in packages
    assert not packages & {"peft", "bitsandbytes"}
