"""Bring a cluster up and down: the order of things, and the record that makes `down` possible.

The record `cluster.json` is written whole before anything is started, and goes last, so that
whatever happens in between, another process can stop and undo it all.
"""

import contextlib
import dataclasses
import json
import os
import pwd
import secrets
import shutil
import socket
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster import daemons, host, processes, user
from tests.cluster.config import GPUS_PER_NODE, NODES, NUM_PORTS, ClusterConfig
from tests.cluster.errors import ClusterError, ClusterUnavailableError, NotAClusterError
from tests.cluster.packages import ensure_packages

# Not in the checkout: that may lie where an ordinary user cannot go, and sockets want short paths.
DEFAULT_FOLDER = Path("/var/tmp/slurm-jobs-cluster")
CHECKOUT = Path(__file__).resolve().parents[2]
_RECORD = "cluster.json"
_PART = f"{_RECORD}.part"


def bring_up(folder: Path, settings: Mapping[str, Any]) -> ClusterConfig:
    """Start a cluster in an empty folder, after removing what an earlier one left there.

    Raises:
        ClusterUnavailableError: this machine cannot have it.
        ClusterError: a daemon did not start; the message carries the logs' tails.
    """
    ensure_packages()
    bring_down(folder)
    config = ClusterConfig(
        folder=folder,
        host=socket.gethostname().partition(".")[0],
        first_port=_free_ports(folder),
        db_password=secrets.token_hex(16),
        **settings,
    )
    try:
        _prepare(config)
        daemons.start_all(config)
    except BaseException as error:
        tails = daemons.log_tails(config)
        bring_down(folder)
        if isinstance(error, ClusterError) and not isinstance(error, ClusterUnavailableError):
            raise ClusterError(f"the cluster did not start: {error}\n{tails}") from error
        raise
    return config


def load(folder: Path) -> ClusterConfig:
    """Return the configuration of the cluster that was started in this folder.

    Raises:
        ClusterUnavailableError: there is none.
        ClusterError: the record is damaged, or of another version.
    """
    try:
        fields = json.loads((folder / _RECORD).read_text())
        return ClusterConfig(**{**fields, "folder": Path(fields["folder"])})
    except FileNotFoundError as error:
        raise ClusterUnavailableError(
            f"no cluster was started in {folder}: python -m tests.cluster up"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(
            f"{folder / _RECORD} cannot be read ({error}): end what runs there "
            f"(pgrep -f {folder}), unmount what is mounted below it, and remove the folder"
        ) from error


def bring_down(folder: Path) -> bool:
    """Stop the folder's cluster and undo all that it changed, and say whether there was any.

    Raises:
        NotAClusterError: the folder holds something else.
    """
    if not folder.exists():
        return False
    try:
        config = load(folder)
    except ClusterUnavailableError:
        if {path.name for path in folder.iterdir()} - {_PART}:
            raise NotAClusterError(f"{folder} is not a cluster's folder: move it away") from None
        remove(folder)  # killed while the record was written: nothing had been started
        return False
    daemons.stop_daemons(config, daemons.STOP_ORDER, grace_s=3)
    for _ in range(5):  # a process that forks while the list is made is seen the next time
        left = processes.strays(folder, config.slurm_conf)
        if not left:
            break
        processes.stop(left, grace_s=1)
    host.unmount_below(folder)
    _restore_host(config)
    if host.mount_points_below(folder):
        raise ClusterError(f"something is still mounted below {folder}")
    remove(folder)
    return True


def clear_away(folder: Path) -> None:
    """Bring down what a killed test run left in a folder of its own.

    Without a record nothing runs there: its process was killed before it began, or at the end.
    """
    try:
        bring_down(folder)
    except NotAClusterError:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a cluster's folder, its record last."""
    for path in folder.iterdir():
        if path.name == _RECORD:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(folder)


def _prepare(config: ClusterConfig) -> None:
    who = host.ensure_user(config.user)
    config.folder.mkdir(parents=True)
    config.folder.chmod(0o755)
    part = config.folder / _PART
    part.touch(mode=0o600)
    with part.open("w") as stream:
        stream.write(json.dumps(dataclasses.asdict(config), default=str, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(config.folder / _RECORD)
    daemons.write_files(config)
    host.make_devices(config.devices, GPUS_PER_NODE)
    config.home.mkdir(mode=0o755)
    os.chown(config.home, who.pw_uid, who.pw_gid)
    host.write_hosts(host.hosts_with_block(host.HOSTS.read_text(), config.folder, NODES))
    for folder, permission in host.private_folders(_paths_for_user(), who.pw_uid).items():
        host.grant(folder, who.pw_uid, permission)
    tried = user.run(config, [sys.executable, "-c", "import tests.cluster"], cwd=CHECKOUT)
    if tried.returncode != 0:
        raise ClusterUnavailableError(
            f"{config.user} cannot use {sys.executable} in {CHECKOUT}:\n{tried.stderr[-2000:]}"
        )


def _paths_for_user() -> list[Path]:
    """Return the folders that the user's jobs read: Python, its packages, the checkout."""
    executable = Path(sys.executable)
    programs = [executable.parent, executable.resolve().parent]
    return [*dict.fromkeys([Path(sys.prefix), Path(sys.base_prefix), *programs, CHECKOUT])]


def _restore_host(config: ClusterConfig) -> None:
    text = host.HOSTS.read_text()
    host.write_hosts(host.hosts_without_block(text, config.folder))
    if host.other_clusters(text, config.folder):
        return  # they need the same folders; the last cluster closes them
    with contextlib.suppress(KeyError):
        uid = pwd.getpwnam(config.user).pw_uid
        for path in _paths_for_user():
            for folder in (path, *path.parents):
                if host.has_grant(folder, uid):
                    host.revoke(folder, uid)


def _free_ports(folder: Path) -> int:
    """Return the first of NUM_PORTS free ports, from where the folder's name points."""
    start = zlib.crc32(str(folder).encode()) % 1000
    for attempt in range(1000):
        # Below 32768, where the kernel takes the ports of outgoing connections from.
        first = 20_000 + (start + attempt) % 1000 * 10
        if all(_is_free(port) for port in range(first, first + NUM_PORTS)):
            return first
    raise ClusterUnavailableError(f"no {NUM_PORTS} free ports between 20000 and 30000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
