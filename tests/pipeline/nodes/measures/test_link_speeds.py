"""Link speeds of network interfaces, from the kernel."""

from __future__ import annotations

from pathlib import Path

from pipeline.nodes.measures.link_speeds import measure_links


def _interface(sys: Path, name: str, speed: str, state: str) -> None:
    folder = sys / "class/net" / name
    (folder / "device").mkdir(parents=True)
    (folder / "speed").write_text(speed)
    (folder / "operstate").write_text(state)


def test_the_fastest_link_that_is_up_counts(tmp_path: Path) -> None:
    _interface(tmp_path, "eth0", "25000\n", "up\n")
    _interface(tmp_path, "eth1", "100000\n", "down\n")
    _interface(tmp_path, "eth2", "-1\n", "up\n")
    assert measure_links(tmp_path).numbers == {"link_bits_per_s": 25e9}
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "state").write_text("4: ACTIVE\n")
    assert measure_links(tmp_path).numbers == {"link_bits_per_s": 200e9}


def test_interfaces_that_say_no_speed_are_the_reason(tmp_path: Path) -> None:
    _interface(tmp_path, "veth0", "-1\n", "up\n")
    assert "veth0" in measure_links(tmp_path).reasons["link"]
    assert "cannot be read" in measure_links(tmp_path / "no").reasons["link"]
