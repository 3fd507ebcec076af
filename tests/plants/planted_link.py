"""A network card of known speed that is full: bytes of a run's reads come over it, and no faster.

The card is a TAP device of a network namespace that the process makes for itself, so that nothing
of the machine's own network changes, and all of it is gone when the process is. The kernel counts
what comes in as it does for any card. A child of the process plays the far end: it sends what is
asked for, one request after the other, at `LINE_SHARE` of the speed. The standard library is all
that it needs, and the rights to make namespaces and mounts: run as a program it tells whether they
are there.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

MEGABITS = 100
"""A second: slow enough for a far end in Python to fill it."""
LINE_SHARE = 0.97
_NAME = b"planted0"
_OWN, _FAR = "10.213.0.1", "10.213.0.2"
_PAYLOAD = 59_000
_MTU = 60_000
_LONGEST_WAIT_S = 60.0

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_SIOCETHTOOL, _ETHTOOL_SSET = 0x8946, 2
_IFF_UP = 1
_SO_RCVBUFFORCE = 33
_ROOM = 1 << 25

_libc = ctypes.CDLL(None, use_errno=True)


class Link:
    """The near end, for reads of this process; any thread may fetch."""

    def __init__(self) -> None:
        """Make the namespace, the card and the far end.

        Raises:
            OSError: this process may not, or the kernel has no such devices.
        """
        _must(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET), "unshare")
        _show_own_cards()
        tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", _NAME, _IFF_TAP | _IFF_NO_PI))
        _bring_up()
        self._requests, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._requests.close()
            _serve(tap, far)
        far.close()
        os.close(tap)

    def fetch(self, num_bytes: int) -> None:
        """Wait until so many bytes have come over the card."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
            near.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
            near.settimeout(_LONGEST_WAIT_S)
            near.bind((_OWN, 0))
            self._requests.send(b"%d %d" % (near.getsockname()[1], num_bytes))
            while near.recv(1 << 16)[:1] != b"L":
                pass


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _show_own_cards() -> None:
    """Have /sys tell of this namespace's cards; all else of it stays, such as cgroups."""
    _must(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount private")
    own = tempfile.mkdtemp()
    _must(_libc.mount(b"sysfs", own.encode(), b"sysfs", 0, None), "mount sysfs")
    for folder in ("devices/virtual/net", "class/net"):
        source, target = f"{own}/{folder}".encode(), f"/sys/{folder}".encode()
        _must(_libc.mount(source, target, None, _MS_BIND, None), f"bind {folder}")


def _bring_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        own, mask = (socket.inet_aton(text) for text in (_OWN, "255.255.255.0"))
        for call, value in ((_SIOCSIFADDR, own), (_SIOCSIFNETMASK, mask)):
            address = struct.pack("HH4s8x", socket.AF_INET, 0, value)
            fcntl.ioctl(asked, call, struct.pack("16s16s8x", _NAME, address))
        fcntl.ioctl(asked, _SIOCSIFMTU, struct.pack("16si20x", _NAME, _MTU))
        for name in (_NAME, b"lo"):
            fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sH22x", name, _IFF_UP))
        # struct ethtool_cmd: speed at 12 (low 16 bits), full duplex at 14.
        command = array.array("B", struct.pack("=III H B 29x", _ETHTOOL_SSET, 0, 0, MEGABITS, 1))
        place, _ = command.buffer_info()
        fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP16x", _NAME, place))


def _serve(tap: int, requests: socket.socket) -> None:
    """The far end: ends with the process that began it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    address = Path(f"/sys/class/net/{_NAME.decode()}/address").read_text()
    mac = bytes.fromhex(address.strip().replace(":", ""))
    bytes_per_s = LINE_SHARE * MEGABITS * 1e6 / 8
    free_at = time.monotonic()
    while request := requests.recv(64):
        port, left = map(int, request.split())
        while left > 0:
            size = min(left, _PAYLOAD)
            left -= size
            frame = _frame(mac, port, (b"L" if left == 0 else b".").ljust(size, b"\0"))
            os.write(tap, frame)
            free_at = max(free_at, time.monotonic()) + len(frame) / bytes_per_s
            time.sleep(max(0.0, free_at - time.monotonic()))
    os._exit(0)


def _frame(mac: bytes, port: int, payload: bytes) -> bytes:
    """Ethernet, IPv4 and UDP (without its checksum, which is optional)."""
    own, far = socket.inet_aton(_OWN), socket.inet_aton(_FAR)
    length = 28 + len(payload)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, far, own)
    total = sum(struct.unpack("!10H", head))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", 0xFFFF - total) + head[12:]
    datagram = struct.pack("!HHHH", 7, port, 8 + len(payload), 0)
    ethernet = mac + bytes.fromhex("021300000002") + bytes.fromhex("0800")
    return ethernet + head + datagram + payload


if __name__ == "__main__":
    try:
        Link().fetch(1_000_000)
    except OSError as error:
        sys.exit(f"no network card can be made here: {error}")
