"""Disks, network cards and InfiniBand ports of a node."""

from __future__ import annotations

import os

from pipeline.timing.load.node_devices import disk_behind, infiniband_ports, whole_disks
from slurm_jobs.base.machine import mount_of, network_cards

MOUNTS = """22 1 0:20 / / rw - btrfs /dev/nvme0n1p2 rw,subvol=/root
30 22 0:31 / /scratch rw,noatime shared:1 - zfs tank rw
31 22 0:32 / /with\\040space rw - btrfs /dev/sda1 rw
32 30 0:33 / /scratch/fast rw - tmpfs tmpfs rw
33 30 8:17 / /scratch/fast rw - xfs /dev/sdb1 rw
"""


def test_only_whole_disks_count(tmp_path):
    for name, is_real in (("nvme0n1", True), ("sda", True), ("dm-0", False), ("loop0", False)):
        folder = tmp_path / "block" / name
        (folder / "device" if is_real else folder).mkdir(parents=True)
        (folder / "dev").write_text(f"259:{len(name)}\n")
    assert whole_disks(tmp_path) == ["259:7", "259:3"]


def test_only_real_cards_count_so_that_no_byte_counts_twice(tmp_path):
    for name, is_real in (("bond0", False), ("eth0", True), ("eth1", True), ("lo", False)):
        folder = tmp_path / "class/net" / name
        (folder / "device" if is_real else folder).mkdir(parents=True)
    assert network_cards(tmp_path) == ["eth0", "eth1"]


def test_in_a_container_all_but_the_loopback_counts(tmp_path):
    for name in ("eth0", "lo"):
        (tmp_path / "class/net" / name).mkdir(parents=True)
    assert network_cards(tmp_path) == ["eth0"]


def test_each_port_of_infiniband_counts(tmp_path):
    assert infiniband_ports(tmp_path) == []
    for card, port in (("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2)):
        (tmp_path / f"class/infiniband/{card}/ports/{port}/counters").mkdir(parents=True)
    assert len(infiniband_ports(tmp_path)) == 3


def test_disk_of_a_file_system_with_its_own_numbers_is_found_by_its_mount(tmp_path):
    path = tmp_path / "x"
    assert mount_of(MOUNTS, path).source == "/dev/nvme0n1p2"
    assert mount_of(MOUNTS, path.__class__("/scratch/me")).source == "tank"
    assert mount_of(MOUNTS, path.__class__("/with space/me")).source == "/dev/sda1"
    assert mount_of(MOUNTS, path.__class__("/scratch/fast/me")).source == "/dev/sdb1"
    assert mount_of("", path).source == ""


def test_the_disk_behind_a_local_folder_is_that_of_its_file_system(tmp_path):
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text("")
    expected = f"{os.major(device)}:{os.minor(device)}" if os.major(device) else None
    assert disk_behind(tmp_path, mounts) == expected
