"""Faults of the network and kills, after which a download is whole all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import StageError
from tests.hub_server import Hub
from tests.pipeline.download.hub_stage import (
    MODEL,
    SHARDS,
    USEFUL,
    download,
    model_files,
    names_below,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "fault",
    [
        {"broken": {SHARDS[0]: [500_000, 0], SHARDS[1]: [0]}},
        {"wrong": {SHARDS[0]: 1, "config.json": 1}},
    ],
    ids=["broken connections", "wrong bytes"],
)
def test_faults_that_pass_are_made_good_in_the_same_attempt(
    hub: Hub, tmp_path: Path, fault: dict[str, Any]
) -> None:
    for name, value in fault.items():
        setattr(hub, name, value)
    download(tmp_path, {"models": [MODEL]})
    expected = {name: data for name, data in model_files().items() if name in USEFUL}
    folder = tmp_path / "get/some/model"
    assert {name: (folder / name).read_bytes() for name in names_below(folder)} == expected


def test_a_hub_that_sends_wrong_bytes_for_ever_is_named(hub: Hub, tmp_path: Path) -> None:
    hub.wrong = {SHARDS[1]: 99}
    with pytest.raises(StageError, match=rf"{MODEL}/{SHARDS[1]} .* each time: its checksum is"):
        download(tmp_path, {"models": [MODEL]})
    assert not (tmp_path / "get/some").exists()


def test_a_killed_attempt_continues_at_the_same_commit(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories[f"models/{MODEL}"]
    first_commit, hub.bytes_per_s = repository.commit, 3e6
    config = {"models": [{"repo": MODEL, "revision": "main"}], "num_threads": 1}
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.pipeline.download.hub_stage import download\n"
        f"download(Path({str(tmp_path)!r}), {config!r})"
    )
    environment = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
    environment["PYTHONPATH"] = str(ROOT)
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as attempt:
        deadline_s = time.monotonic() + 60
        while hub.sent(SHARDS[0]) == 0:  # the second file, since the largest comes first
            assert time.monotonic() < deadline_s
            assert attempt.poll() is None
            time.sleep(0.01)
        attempt.send_signal(signal.SIGKILL)
    assert not (tmp_path / "get/some").exists()
    assert hub.sent(SHARDS[1]) == 1
    repository.files = model_files("a later commit")
    hub.bytes_per_s = None
    result = download(tmp_path, config, attempt=2)
    assert result["repositories"][0]["commit"] == first_commit
    assert (tmp_path / "get/some/model/config.json").read_bytes() == model_files()["config.json"]
    assert hub.sent(SHARDS[1]) == 1
    assert not list(tmp_path.rglob("*.incomplete"))
