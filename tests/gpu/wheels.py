"""Packages for a machine with a GPU and no network: collected here, unpacked there.

    python -m tests.gpu.wheels [FOLDER]

downloads the wheels of the packages that a bare machine may lack, at the versions of
constraints.txt, for its Python and platform, and fails if they are larger than a carried folder may
be. `unpack` makes those importable that are missing.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = ("bitsandbytes", "braceexpand", "simplejpeg", "webdataset")
"""As they are imported. All else is there where torch, transformers, accelerate and peft are."""
MOST_BYTES = 60_000_000
PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64",
             "manylinux2014_x86_64")  # fmt: skip
DEFAULT_FOLDER = Path(".gpu-wheels")


def collect(folder: Path, constraints: Path) -> int:
    """Download the wheels into a folder, and return their size in bytes.

    Raises:
        subprocess.CalledProcessError: pip found no wheel.
        ValueError: they are too large.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", constraints.read_text(), re.MULTILINE))
    wanted = [f"{name}=={pinned[name]}" if name in pinned else name for name in PACKAGES]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
         "--python-version", PYTHON, "--implementation", "cp", *platforms,
         "--dest", str(folder), *wanted],
        check=True,
    )  # fmt: skip
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.whl"))
    if num_bytes > MOST_BYTES:
        message = f"{folder} has {num_bytes:,} bytes of wheels; a machine takes {MOST_BYTES:,}"
        raise ValueError(message)
    return num_bytes


def unpack(wheels: Path, into: Path) -> list[str]:
    """Unpack the wheels of packages that cannot be imported, and return their names."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    unpacked = []
    for name in missing:
        for wheel in sorted(wheels.glob(f"{name}-*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(into)
            unpacked.append(name)
    return unpacked


def main() -> None:
    """Collect."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    num_bytes = collect(folder, Path(__file__).parents[2] / "constraints.txt")
    names = ", ".join(sorted(path.name for path in folder.glob("*.whl")))
    print(f"{folder}: {num_bytes / 1e6:.1f} MB: {names}")


if __name__ == "__main__":
    main()
