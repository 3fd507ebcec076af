"""Shards of a stream that cannot be read from their address: why, and what to do."""

from __future__ import annotations

import base64
import http.client
import os
import socket
import urllib.error
import urllib.parse
import urllib.request

from slurm_jobs.base.redact import without_url_users

_LIMIT_S = 10.0
"""Patience for the answer to one request, which finds out why the reader failed."""
_INVALID = "it is not a valid address; write special characters in it as %XX"


def address_problem(error: BaseException) -> str | None:
    """Return what is wrong with the address that webdataset failed to open; None for files.

    webdataset reads addresses by `curl`, and its error has the address as the last argument.
    """
    address = next((arg for arg in reversed(error.args) if isinstance(arg, str)), "")
    if not address.startswith(("http://", "https://")):
        return None
    shown = without_url_users(address).partition("?")[0]  # the rest may be a signature
    return (
        f"the shard {shown} of the stream cannot be read: {_why(address)}. Compute nodes often "
        "have no network: copy the shards to a folder that all nodes see, where a machine reaches "
        "them, and name its files in stream.urls"
    )


def _why(address: str) -> str:
    """Ask the address once more, because curl's exit code is only in a text.

    The login is sent to the server of the address only, and not to where that redirects.
    """
    public = without_url_users(address)
    try:
        user, at, server = urllib.parse.urlsplit(address).netloc.rpartition("@")
        public_server = urllib.parse.urlsplit(public).netloc
    except ValueError:  # its text may have a password
        return _INVALID
    if public_server != server:  # the password has a `/`, which ends the name of the server
        return _INVALID
    try:
        request = urllib.request.Request(public)  # noqa: S310 - http and https alone
        if at:  # as curl does
            login = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=_LIMIT_S):  # noqa: S310
            return "it answers now, so the connection ended before; resume the run"
    except urllib.error.HTTPError as error:
        return f"its server answered {error.code}; correct the address, or your access to it"
    except http.client.InvalidURL:  # its text may have a part of a password
        return _INVALID
    except (OSError, ValueError, http.client.HTTPException) as error:
        node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        reason = getattr(error, "reason", error)
        return f"{node} does not reach it ({type(reason).__name__}: {reason})"
