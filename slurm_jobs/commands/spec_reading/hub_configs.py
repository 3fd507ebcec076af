"""The config.json of models on a hub, from the local cache or from the hub itself.

`huggingface_hub` is not imported: a login node may lack it, and its import takes longer than all of
`check`. The variables and the cache are those of that library.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.regular_files import read_bytes, read_text
from slurm_jobs.commands.spec_reading.hub_request import ask_hub
from slurm_jobs.spec.spec_files import HubAnswer

LIMIT_S = 3.0
"""Time for all questions of a command together. A name look-up alone may take half a minute."""
_HUB = "https://huggingface.co"
_TRUE = ("1", "ON", "YES", "TRUE")


class HubConfigs:
    """Reads each model's config.json once."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, ...], HubAnswer] = {}
        self._left_s = LIMIT_S

    def config(self, repo: str, revision: str | None, environment: Mapping[str, str]) -> HubAnswer:
        """Return the config.json of a model for a job with these variables, or why it is unknown.

        The local cache comes first, as for the job.
        """
        variables = {**os.environ, **environment}
        cached = _cached_config(repo, revision or "main", variables)
        if cached:
            return HubAnswer(kind="found", values=cached)
        if _is_offline(os.environ) or _is_offline(environment):
            return HubAnswer(kind="not known", reason="HF_HUB_OFFLINE is set")
        endpoint = (variables.get("HF_ENDPOINT") or _HUB).rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            reason = f"HF_ENDPOINT is {endpoint}, which is not an address"
            return HubAnswer(kind="not known", reason=reason)
        # A spec may come from another user, and name a hub that collects tokens.
        is_own = endpoint == (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        token = _token(variables) if is_own else environment.get("HF_TOKEN", "")
        key = (endpoint, repo, revision or "main")
        if key not in self._answers:
            self._answers[key] = self._ask_in_time(*key, token)
        return self._answers[key]

    def _ask_in_time(self, endpoint: str, repo: str, revision: str, token: str) -> HubAnswer:
        if self._left_s <= 0:
            return _no_answer(endpoint)
        answers: list[HubAnswer] = []

        def ask() -> None:
            answers.append(ask_hub(endpoint, repo, revision, token, timeout_s=LIMIT_S))

        start_s = time.monotonic()
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(self._left_s)  # a name look-up has no time limit of its own
        answer = answers[0] if answers else _no_answer(endpoint)
        self._left_s -= time.monotonic() - start_s
        if answer.kind == "not known":
            self._left_s = 0.0  # it is not asked about other models either
        return answer


def _no_answer(endpoint: str) -> HubAnswer:
    reason = f"{endpoint} does not answer within {LIMIT_S:g} s"
    return HubAnswer(kind="not known", reason=reason)


def _is_offline(variables: Mapping[str, str]) -> bool:
    value = variables.get("HF_HUB_OFFLINE") or variables.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in _TRUE


def _home(variables: Mapping[str, str]) -> Path:
    cache = variables.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(variables.get("HF_HOME") or f"{cache}/huggingface").expanduser()


def _cached_config(repo: str, revision: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the config.json in the cache of huggingface_hub; empty if it is not there."""
    with suppress(OSError, ValueError, RuntimeError, RecursionError):
        hub = variables.get("HF_HUB_CACHE") or variables.get("HUGGINGFACE_HUB_CACHE")
        cache = Path(hub).expanduser() if hub else _home(variables) / "hub"
        folder = cache / "--".join(["models", *repo.split("/")])
        reference = folder / "refs" / revision
        commit = read_text(reference).strip() if reference.is_file() else revision
        values = json.loads(read_bytes(folder / "snapshots" / commit / "config.json"))
        return values if isinstance(values, dict) else {}
    return {}


def _token(variables: Mapping[str, str]) -> str:
    given = variables.get("HF_TOKEN") or variables.get("HUGGING_FACE_HUB_TOKEN")
    if given:
        return given.strip()
    with suppress(OSError, ValueError, RuntimeError):
        path = variables.get("HF_TOKEN_PATH")
        return read_text(Path(path).expanduser() if path else _home(variables) / "token").strip()
    return ""
