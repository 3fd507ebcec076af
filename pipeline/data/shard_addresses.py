"""Shards of a stream that cannot be read from their address: why, and what to do."""

from __future__ import annotations

import http.client
import os
import socket
import urllib.error
import urllib.request

_LIMIT_S = 10.0
"""Patience for the answer to one request, which finds out why the reader failed."""


def address_problem(error: BaseException) -> str | None:
    """Return what is wrong with the address that webdataset failed to open; None for files.

    webdataset reads addresses by `curl`, and its error has the address as the last argument.
    """
    address = next((arg for arg in reversed(error.args) if isinstance(arg, str)), "")
    if not address.startswith(("http://", "https://")):
        return None
    shown = address.partition("?")[0]  # the rest may be a signature
    return (
        f"the shard {shown} of the stream cannot be read: {_why(address)}. Compute nodes often "
        "have no network: copy the shards to a folder that all nodes see, where a machine reaches "
        "them, and name its files in stream.urls"
    )


def _why(address: str) -> str:
    """Ask the address once more, because curl's exit code is only in a text."""
    try:
        with urllib.request.urlopen(address, timeout=_LIMIT_S):  # noqa: S310 - http and https alone
            return "it answers now, so the connection ended before; resume the run"
    except urllib.error.HTTPError as error:
        return f"its server answered {error.code}; correct the address, or your access to it"
    except (OSError, ValueError, http.client.HTTPException) as error:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        reason = getattr(error, "reason", error)
        return f"{node} does not reach it ({type(reason).__name__}: {reason})"
