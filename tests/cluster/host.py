"""What the cluster changes on the machine outside its folder, and how it is undone.

A user, a marked block in /etc/hosts, mounts below the folder, and the right of that one user to
pass through private folders on the way to Python and the checkout (an ACL entry).
"""

import contextlib
import os
import pwd
import re
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.errors import ClusterUnavailableError
from tests.cluster.packages import program

HOSTS = Path("/etc/hosts")
_BEGIN = "# slurm-jobs test cluster {folder}: begin"
_END = "# slurm-jobs test cluster {folder}: end"

# Linux's posix_acl_xattr: a version, then entries of tag, permission, id.
_ACL = "system.posix_acl_access"
_ACL_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 1, 2, 4, 8, 16, 32
_NO_ID = 0xFFFFFFFF
_EXECUTE, _READ_EXECUTE = 1, 5


def ensure_user(name: str) -> pwd.struct_passwd:
    """Return the user, created as a system account without password or home if absent."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)
    command = [program("useradd"), "--system", "--user-group", "--no-create-home"]
    command += ["--home-dir", "/nonexistent", "--shell", "/bin/bash", name]
    subprocess.run(command, check=True, capture_output=True)
    return pwd.getpwnam(name)


def hosts_with_block(text: str, folder: Path, names: Iterable[str]) -> str:
    """Return an /etc/hosts text with this cluster's block at its end."""
    block = [
        _BEGIN.format(folder=folder),
        f"127.0.0.1 {' '.join(names)}",
        _END.format(folder=folder),
    ]
    base = hosts_without_block(text, folder)
    # A file without a last newline gets one inside the block's span, so that removal restores it.
    glue = "" if base.endswith("\n") or not base else "\n"
    return base + glue + "\n".join(block) + ("\n" if not glue else "")


def hosts_without_block(text: str, folder: Path) -> str:
    """Return the text as it was before the block."""
    begin, end = re.escape(_BEGIN.format(folder=folder)), re.escape(_END.format(folder=folder))
    text = re.sub(rf"(?:\A|(?<=\n)){begin}\n.*?\n{end}\n", "", text, flags=re.DOTALL)
    return re.sub(rf"\n{begin}\n.*?\n{end}(?=\n|\Z)", "", text, flags=re.DOTALL)


def other_clusters(text: str, folder: Path) -> list[Path]:
    """Return the folders of the other clusters that have a block in an /etc/hosts text."""
    pattern = re.escape(_BEGIN).replace(re.escape("{folder}"), "(.*)")
    found = [Path(match) for match in re.findall(rf"^{pattern}$", text, flags=re.MULTILINE)]
    return [path for path in found if path != folder and path.exists()]


def write_hosts(text: str) -> None:
    """Replace /etc/hosts; in a container it may be a mount, which can only be written in place."""
    if HOSTS.read_text() == text:
        return
    old = HOSTS.stat()
    fd, name = tempfile.mkstemp(prefix=".hosts.", dir=HOSTS.parent)
    with os.fdopen(fd, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.chown(name, old.st_uid, old.st_gid)
    Path(name).chmod(stat.S_IMODE(old.st_mode))
    try:
        Path(name).replace(HOSTS)
    except OSError:
        Path(name).unlink()
        HOSTS.write_text(text)


def make_devices(folder: Path, count: int) -> None:
    """Make character devices (all of them /dev/null) that stand for GPUs."""
    for index in range(count):
        path = folder / f"nvidia{index}"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError as error:
            raise ClusterUnavailableError(
                f"mknod {path} is not permitted here: the container needs the capability MKNOD"
            ) from error
        path.chmod(0o666)


def mount_points_below(folder: Path) -> list[Path]:
    """Return the mount points below `folder`, deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].replace("\\040", " ")) for line in lines]
    return sorted((p for p in points if folder in p.parents), key=lambda p: -len(p.parts))


def mount_small_disk(path: Path, *, size_mb: int, uid: int, gid: int) -> None:
    """Mount a tmpfs of this size at `path`, for tests of a full disk."""
    path.mkdir(parents=True)
    options = f"size={size_mb}m,uid={uid},gid={gid},mode=755"
    subprocess.run([program("mount"), "-t", "tmpfs", "-o", options, "tmpfs", path], check=True)


def unmount_below(folder: Path) -> None:
    """Unmount everything below `folder`; lazily, since a killed job may not be gone yet."""
    for point in mount_points_below(folder):
        subprocess.run([program("umount"), "--lazy", point], check=True)


def private_folders(paths: Iterable[Path], uid: int) -> dict[Path, int]:
    """Return the folders at or above `paths` that others cannot pass, with the permission needed.

    The paths themselves (where folders) need to be read, those above only to be passed through.
    """
    needed: dict[Path, int] = {}
    for path in paths:
        for folder in (path, *path.parents):
            status = folder.stat()
            want = _READ_EXECUTE if folder == path else _EXECUTE
            if not stat.S_ISDIR(status.st_mode) or status.st_uid == uid:
                continue
            if stat.S_IMODE(status.st_mode) & want != want:
                needed[folder] = needed.get(folder, 0) | want
    return needed


def grant(folder: Path, uid: int, permission: int) -> None:
    """Let one user into a folder, and nobody else.

    Raises:
        ClusterUnavailableError: the file system has no ACLs.
    """
    entries = [e for e in _read_acl(folder) if (e[0], e[2]) != (_USER, uid) and e[0] != _MASK]
    entries.append((_USER, permission, uid))
    # The mask caps every named entry; the widest permission keeps what was granted before.
    widest = 0
    for tag, allowed, _ in entries:
        widest |= allowed if tag in {_USER, _GROUP_OBJ, _GROUP} else 0
    entries.append((_MASK, widest, _NO_ID))
    try:
        os.setxattr(folder, _ACL, _pack_acl(entries))
    except OSError as error:
        raise ClusterUnavailableError(
            f"{folder} is closed to ordinary users, and takes no ACL ({error.strerror}):"
            " put the checkout and Python where everybody can read them"
        ) from error


def has_grant(folder: Path, uid: int) -> bool:
    return folder.exists() and any((e[0], e[2]) == (_USER, uid) for e in _read_acl(folder))


def revoke(folder: Path, uid: int) -> None:
    """Undo `grant`; the mode is again what it was."""
    entries = [e for e in _read_acl(folder) if (e[0], e[2]) != (_USER, uid)]
    if any(tag in {_USER, _GROUP} for tag, _, _ in entries):
        os.setxattr(folder, _ACL, _pack_acl(entries))
        return
    group = next(permission for tag, permission, _ in entries if tag == _GROUP_OBJ)
    with contextlib.suppress(OSError):  # it had no ACL
        os.removexattr(folder, _ACL)
    # With an ACL, the group bits of the mode are the mask; the group's own are in the ACL.
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod((mode & ~0o070) | (group << 3))


def _read_acl(folder: Path) -> list[tuple[int, int, int]]:
    try:
        raw = os.getxattr(folder, _ACL)
    except OSError:
        mode = folder.stat().st_mode
        bits = ((_USER_OBJ, mode >> 6), (_GROUP_OBJ, mode >> 3), (_OTHER, mode))
        return [(tag, value & 7, _NO_ID) for tag, value in bits]
    return list(struct.iter_unpack("<HHI", raw[4:]))


def _pack_acl(entries: list[tuple[int, int, int]]) -> bytes:
    ordered = sorted(entries, key=lambda e: (e[0], e[2]))
    return struct.pack("<I", _ACL_VERSION) + b"".join(struct.pack("<HHI", *e) for e in ordered)
