"""Request for the config.json of a model on a hub."""

from __future__ import annotations

import json
from typing import Any

from slurm_jobs.spec.spec_files import HubAnswer

_MOST_BYTES = 1 << 20


def ask_hub(endpoint: str, repo: str, revision: str, token: str, *, timeout_s: float) -> HubAnswer:
    """Return the config.json of a model, or why the hub does not give it.

    A name look-up may take longer than `timeout_s`.
    """
    import http.client
    import urllib.error
    import urllib.request
    from urllib.parse import quote, urlsplit

    class OwnHostOnly(urllib.request.HTTPRedirectHandler):
        """Follows redirects, without the token to other hosts."""

        def redirect_request(self, req: Any, *words: Any) -> urllib.request.Request | None:
            """Return the next request."""
            following = super().redirect_request(req, *words)
            if following and urlsplit(following.full_url)[:2] != urlsplit(req.full_url)[:2]:
                following.remove_header("Authorization")
            return following

    url = f"{endpoint}/{quote(repo)}/resolve/{quote(revision, safe='')}/config.json"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http and https alone
    try:
        with urllib.request.build_opener(OwnHostOnly).open(request, timeout=timeout_s) as response:
            values = json.loads(response.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        return _refusal(endpoint, error.code, error.headers.get("X-Error-Code") or "")
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        reason = f"{endpoint} is not reached ({getattr(error, 'reason', error)})"
        return HubAnswer(kind="not known", reason=reason)
    if not isinstance(values, dict):
        return HubAnswer(kind="none", reason="its config.json holds no keys and values")
    return HubAnswer(kind="found", values=values)


def _refusal(endpoint: str, status: int, code: str) -> HubAnswer:
    from http import HTTPStatus

    if code == "EntryNotFound":
        return HubAnswer(kind="none", reason=f"{endpoint} has no config.json in it")
    if code == "RevisionNotFound":
        return HubAnswer(kind="none", reason=f"{endpoint} has no such revision of it")
    if code == "GatedRepo":
        reason = f"{endpoint} shows it only to accounts that have accepted its terms"
        return HubAnswer(kind="no access", reason=reason)
    if code == "RepoNotFound" or status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
        reason = f"{endpoint} has no such model, or a private one that your token cannot read"
        return HubAnswer(kind="no access", reason=reason)
    return HubAnswer(kind="not known", reason=f"{endpoint} answers {status}")
