"""What the cluster changes on the host is undone exactly."""

import os
from pathlib import Path

import pytest

from tests.cluster.host import (
    grant,
    has_grant,
    hosts_with_block,
    hosts_without_block,
    other_clusters,
    private_folders,
    revoke,
)
from tests.cluster.packages import distribution

A, B = Path("/var/tmp/a"), Path("/var/tmp/b")
USER = 64_321


@pytest.mark.parametrize("text", ["", "127.0.0.1 localhost\n", "127.0.0.1 localhost"])
def test_hosts_is_restored_whichever_cluster_goes_first(text: str):
    both = hosts_with_block(hosts_with_block(text, A, ["n1"]), B, ["n1"])
    assert both.count("127.0.0.1 n1") == 2
    assert hosts_without_block(hosts_without_block(both, A), B) == text
    assert hosts_without_block(hosts_without_block(both, B), A) == text


def test_a_block_is_written_once():
    once = hosts_with_block("x\n", A, ["n1"])
    assert hosts_with_block(once, A, ["n1"]) == once


def test_other_clusters_are_those_whose_folder_exists(tmp_path: Path):
    text = hosts_with_block(hosts_with_block("", A, ["n1"]), tmp_path, ["n1"])
    assert other_clusters(text, A) == [tmp_path]
    assert other_clusters(text, tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "setxattr"), reason="no xattrs here")
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o710])
def test_a_grant_opens_one_folder_to_one_user_and_is_undone(tmp_path: Path, mode: int):
    folder = tmp_path / "private"
    folder.mkdir()
    folder.chmod(mode)
    assert private_folders([folder], USER)[folder] == 5
    grant(folder, USER, 1)
    grant(folder, USER + 1, 5)
    assert has_grant(folder, USER)
    revoke(folder, USER)
    assert not has_grant(folder, USER)
    assert has_grant(folder, USER + 1)
    revoke(folder, USER + 1)
    assert folder.stat().st_mode & 0o777 == mode
    assert "system.posix_acl_access" not in os.listxattr(folder)


def test_the_distribution_is_read_with_what_it_is_like():
    assert distribution('ID=mint\nID_LIKE="ubuntu debian"\nNAME=x\n') == {
        "mint",
        "ubuntu",
        "debian",
    }
