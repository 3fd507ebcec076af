"""Which programs the cluster needs, and how a bare Debian or Ubuntu gets them.

Decides and installs packages only; what is started from them is `daemons.py`'s matter.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.cluster.errors import ClusterUnavailableError

# program -> Debian package
PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "setpriv": "util-linux",
    "useradd": "passwd",
    "mount": "mount",
    "faketime": "faketime",  # a login node whose clock is wrong
}
# Daemons live in sbin, which is not on every root's PATH.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_APT_TIMEOUT_S = 600


def program(name: str) -> str:
    """Return the path of a system program, whatever the caller's PATH is."""
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise ClusterUnavailableError(
            f"{name} is not installed (package {PROGRAMS.get(name, '?')})"
        )
    return found


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are not here, sorted."""
    return sorted(
        {pkg for name, pkg in PROGRAMS.items() if shutil.which(name, path=SEARCH_PATH) is None}
    )


def distribution(os_release: str) -> set[str]:
    """Return the ID and ID_LIKE words of an /etc/os-release text."""
    words: set[str] = set()
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key in {"ID", "ID_LIKE"}:
            words.update(value.strip().strip("\"'").split())
    return words


def ensure_packages() -> None:
    """Install what is missing.

    Raises:
        ClusterUnavailableError: not Linux, not root, or missing packages cannot be installed.
    """
    if platform.system() != "Linux":
        raise ClusterUnavailableError("the Slurm test cluster needs Linux")
    if os.geteuid() != 0:
        raise ClusterUnavailableError("the Slurm test cluster needs root (daemons, device nodes)")
    missing = missing_packages()
    if not missing:
        return
    release = Path("/etc/os-release")
    ids = distribution(release.read_text()) if release.exists() else set()
    if not ids & {"debian", "ubuntu"} or shutil.which("apt-get") is None:
        raise ClusterUnavailableError(
            f"packages are missing ({' '.join(missing)}), and they are only installed by themselves"
            " on Debian and Ubuntu"
        )
    _apt_install(missing)


def _apt_install(packages: list[str]) -> None:
    print(f"cluster: installing {' '.join(packages)} with apt-get", flush=True)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    output = ""
    # The package lists of a fresh machine are empty or old, so update first; where that fails
    # (no network, but packages at hand) the installation itself has the last word.
    for command in (["apt-get", "update", "-q"], install):
        try:
            done = subprocess.run(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_APT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterUnavailableError(f"{' '.join(command)}: timed out") from error
        output += done.stdout
    still_missing = missing_packages()
    if still_missing:
        tail = "\n".join(output.splitlines()[-15:])
        raise ClusterUnavailableError(
            f"apt-get did not bring {' '.join(still_missing)}; its last words:\n{tail}"
        )
