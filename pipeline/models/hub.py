"""Failed downloads from the Hugging Face hub: what failed, and what to do.

The classes and status codes of the errors decide, because the texts of libraries change.
"""

from __future__ import annotations

import errno
import os
import shlex
import socket
import sys
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

DOWNLOAD_ERRORS = (OSError, ValueError, HTTPError)
"""Errors of downloads, also as transformers raises them."""

FailureKind = Literal[
    "offline",
    "unreachable",
    "interrupted",
    "hub fault",
    "token",
    "forbidden",
    "gated",
    "no repository",
    "no revision",
    "no file",
    "no space",
    "no access",
]

_HTTP = sys.modules[HTTPError.__module__.partition(".")[0]]
"""HTTP library that the installed huggingface_hub uses."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_BY_STATUS: dict[int, FailureKind] = {
    HTTPStatus.UNAUTHORIZED: "token",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "no repository",
}
_TRANSIENT: frozenset[FailureKind] = frozenset({"interrupted", "hub fault"})
_BY_CLASS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (OfflineModeIsEnabled, "offline"),
    (GatedRepoError, "gated"),  # a RepositoryNotFoundError, too
    (RepositoryNotFoundError, "no repository"),
    (RevisionNotFoundError, "no revision"),
    (RemoteEntryNotFoundError, "no file"),
    (_HTTP.ConnectError, "unreachable"),
    (_HTTP.ConnectTimeout, "unreachable"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadFailure:
    """Reason why a repository could not be downloaded."""

    kind: FailureKind
    cause: BaseException
    """Error that decided the kind."""

    @property
    def is_transient(self) -> bool:
        """Return whether another attempt may succeed without a change."""
        return self.kind in _TRANSIENT


def download_failure(error: BaseException) -> DownloadFailure | None:
    """Return why a download failed; None if the error has another origin, such as a bad file."""
    chain = []
    origin: BaseException | None = error
    while origin is not None:
        chain.append(origin)
        origin = origin.__cause__ or origin.__context__
    for cause in chain:
        kind = _kind_of(cause)
        if kind is not None:
            return DownloadFailure(kind=kind, cause=cause)
    for cause in chain:  # raised without its cause
        if isinstance(cause, LocalEntryNotFoundError):
            is_offline = constants.is_offline_mode()
            return DownloadFailure(kind="offline" if is_offline else "unreachable", cause=cause)
    return None


def _kind_of(error: BaseException) -> FailureKind | None:
    for error_class, kind in _BY_CLASS:
        if isinstance(error, error_class):
            return kind
    if isinstance(error, HfHubHTTPError):
        return _BY_STATUS.get(error.response.status_code, "hub fault")
    if isinstance(error, HTTPError):
        return "interrupted"
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return "no space"
    if isinstance(error, OSError) and error.errno in _NO_ACCESS:
        return "no access"
    return None


def failure_text(
    failure: DownloadFailure,
    repository: str,
    revision: str | None = None,
    *,
    elsewhere: str | None = None,
) -> str:
    """Return what failed, with the repository, the hub and the node, and what to do.

    Args:
        failure: of the download.
        repository: as in the hub's addresses: `OWNER/NAME`, or `datasets/OWNER/NAME`.
        revision: that was requested.
        elsewhere: how to download it on another machine, to follow "or"; by default to a cache.
    """
    endpoint = constants.ENDPOINT
    name = repository if revision is None else f"{repository} at revision {revision}"
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    place = getattr(failure.cause, "filename", None) or constants.HF_HUB_CACHE
    words = ["hf", "download", repository, *([] if revision is None else ["--revision", revision])]
    command = f"`HF_HOME={shlex.quote(constants.HF_HOME)} {shlex.join(words)}`"
    elsewhere = elsewhere or (
        f"type {command} where there is a network, such as on the login node, with an HF_HOME that "
        "all nodes see"
    )
    intro = f"{name} cannot be downloaded from {endpoint}"
    texts: dict[FailureKind, str] = {
        "offline": f"{name} is not in the cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is "
        f"set: {elsewhere}",
        "unreachable": f"{intro}: {node} does not reach it ({_short(failure.cause)}). Compute "
        f'nodes often have no network: {elsewhere}, and set `HF_HUB_OFFLINE: "1"` in '
        "`environment:`, so that no start waits for the network",
        "interrupted": f"{intro}: the connection ended ({_short(failure.cause)}). Resume the run, "
        f"or {elsewhere}",
        "hub fault": f"{intro}: it answered {_status(failure.cause)}. Resume the run later, or "
        f"{elsewhere}",
        "token": f"{intro}: it answered 401, because it needs a token or does not accept yours. "
        f"Type `hf auth login`, or export a valid HF_TOKEN in `setup:`, or {elsewhere}",
        "forbidden": f"{intro}: it answered 403, so your token may not read it. Export the "
        f"HF_TOKEN of an account that may in `setup:`, or {elsewhere}",
        "gated": f"{intro}: it is gated. Accept its terms at {endpoint}/{repository}, and export "
        f"the HF_TOKEN of that account in `setup:`, or {elsewhere}",
        "no repository": f"{intro}: it has no such repository, or a private one that your HF_TOKEN "
        "cannot read. Correct the name, or export the HF_TOKEN of its owner in `setup:`",
        "no revision": f"{intro}: it has no such revision. Correct the revision, or leave it out "
        "for the newest",
        "no file": f"{intro}: a file that is needed is not in the repository. Name a repository "
        "of a model, with its config.json and weights",
        "no space": f"{intro}: the disk of {place} is full. Make room, or set HF_HOME in "
        "`environment:` to a folder with room",
        "no access": f"{intro}: {node} cannot write to {place}. Set HF_HOME in `environment:` to a "
        "folder of yours that all nodes see",
    }
    return texts[failure.kind]


def _status(error: BaseException) -> int | None:
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def _short(error: BaseException) -> str:
    """Return the class and the first line of an error."""
    lines = str(error).splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])
