"""The ordinary user who submits jobs: commands run as this user, folders that belong to it."""

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.config import ClusterConfig
from tests.cluster.packages import SEARCH_PATH, program


def account(config: ClusterConfig) -> pwd.struct_passwd:
    return pwd.getpwnam(config.user)


def env(config: ClusterConfig) -> dict[str, str]:
    """Return the whole environment of the user's commands; nothing is taken from the caller's."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{SEARCH_PATH}",
        "HOME": str(config.home),
        "USER": config.user,
        "LOGNAME": config.user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(config.slurm_conf),
    }


def command(config: ClusterConfig, argv: Sequence[str | Path]) -> list[str]:
    """Return the command line that runs argv as the user."""
    switch = [program("setpriv"), f"--reuid={config.user}", f"--regid={config.user}"]
    return [*switch, "--clear-groups", "--no-new-privs", "--", *(str(word) for word in argv)]


def run(
    config: ClusterConfig,
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    extra_env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float | None = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command as the user and return what it printed, whatever its exit code."""
    return subprocess.run(
        command(config, argv),
        cwd=cwd or config.home,
        env={**env(config), **(extra_env or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        umask=0o022,
    )


def make_folder(config: ClusterConfig, prefix: str) -> Path:
    """Return a new empty folder that belongs to the user and that everybody can read."""
    path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=config.work))
    path.chmod(0o755)
    who = account(config)
    os.chown(path, who.pw_uid, who.pw_gid)
    return path
