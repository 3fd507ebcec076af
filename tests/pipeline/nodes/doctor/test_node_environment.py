"""What a node gives a job, as this machine does."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from pipeline.nodes.doctor import node_environment
from pipeline.nodes.doctor.node_environment import (
    folder_facts,
    gpu_numa_nodes,
    has_infiniband,
    limits,
    nccl_variables,
    programs,
    reach_hub,
)


def test_a_folder_is_made_and_written_and_one_that_takes_nothing_says_why(tmp_path: Path) -> None:
    facts = folder_facts(tmp_path / "own")
    assert facts.problem == ""
    assert facts.kind
    assert facts.free_bytes
    assert list((tmp_path / "own").iterdir()) == []
    assert folder_facts(Path("/proc/nowhere")).problem


def test_limits_are_numbers_or_none_where_there_is_none() -> None:
    found = limits()
    assert set(found) == {"open_files", "locked_bytes", "shm_bytes", "memory_bytes"}
    assert all(value is None or value >= 0 for value in found.values())


def test_programs_that_are_not_there_have_no_path(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = programs("1")
    assert found["scontrol"].path == found["srun"].path == ""
    assert found["scontrol"].problem


def test_cards_of_infiniband_are_seen(tmp_path: Path) -> None:
    assert not has_infiniband(tmp_path)
    (tmp_path / "mlx5_0").mkdir()
    assert has_infiniband(tmp_path)


class _Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_hub_that_refuses_was_reached_and_one_that_is_not_there_was_not(monkeypatch) -> None:
    monkeypatch.setattr(node_environment, "HUB_LIMIT_S", 4.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        seconds, problem = reach_hub({"HF_ENDPOINT": url})
        server.shutdown()
    assert (seconds is not None, problem) == (True, "")
    gone, why = reach_hub({"HF_ENDPOINT": url})
    assert gone is None
    assert url in why


def test_gpu_numa_nodes_are_those_of_nvidia_gpus_in_order_of_address(
    tmp_path: Path,
) -> None:
    devices = {
        "0000:c1:00.0": ("0x030200", "0x10de", "1"),
        "0000:07:00.0": ("0x030200", "0x10de", "3"),
        "0000:07:00.1": ("0x040300", "0x10de", "3"),  # its audio
        "0000:02:00.0": ("0x030000", "0x1a03", "0"),  # the board's own graphics
    }
    for address, values in devices.items():
        (tmp_path / address).mkdir()
        for name, value in zip(("class", "vendor", "numa_node"), values, strict=True):
            (tmp_path / address / name).write_text(f"{value}\n")
    assert gpu_numa_nodes(tmp_path) == (3, 1)
    assert gpu_numa_nodes(tmp_path / "none") == ()


def test_variables_that_steer_nccl_and_the_hub_are_kept_and_tokens_are_not() -> None:
    given = {"NCCL_DEBUG": "INFO", "HF_HUB_OFFLINE": "1", "HF_TOKEN": "secret", "HOME": "/h"}
    assert nccl_variables(given) == {"HF_HUB_OFFLINE": "1", "NCCL_DEBUG": "INFO"}
