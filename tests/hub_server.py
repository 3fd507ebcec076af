"""A small Hugging Face hub: what huggingface_hub asks it for, with the faults of networks."""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

BLOCK_BYTES = 64 * 1024


@dataclass
class Repository:
    """Files of a repository at its newest commit, by name."""

    files: dict[str, bytes]
    is_gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files of every commit that was asked for, which stay."""

    @property
    def commit(self) -> str:
        """Git's hash would depend on more."""
        digest = hashlib.sha1()
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\0".encode() + hashlib.sha1(data).digest())
        self.commits.setdefault(digest.hexdigest(), dict(self.files))
        return digest.hexdigest()


@dataclass
class Hub:
    """What the hub has, what it refuses, and what it was asked."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    """By `models/OWNER/NAME` or `datasets/OWNER/NAME`."""
    token: str = ""
    """If given, requests need it."""
    broken: dict[str, list[int]] = field(default_factory=dict)
    """By file name: after how many bytes the next connections break; each breaks one."""
    wrong: dict[str, int] = field(default_factory=dict)
    """By file name: how many of the next answers have another byte."""
    failing: list[int] = field(default_factory=list)
    """Status codes of the next answers."""
    claimed: dict[str, int] = field(default_factory=dict)
    """By file name: its size as the list of files gives it."""
    delay_s: float = 0.0
    """Before each answer."""
    bytes_per_s: float | None = None
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    tokens: list[tuple[str, str]] = field(default_factory=list)
    """Path and Authorization of each request that has one."""
    address: str = ""

    def sent(self, name: str) -> int:
        """How often the content of a file was asked for."""
        return sum(line.startswith("GET ") and line.endswith(name) for line in self.requests)


def is_large(name: str) -> bool:
    """Whether the hub keeps a file in its large storage."""
    return name.endswith((".safetensors", ".parquet", ".bin"))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does; `hub` is set by a subclass."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        time.sleep(hub.delay_s)
        given = self.headers.get("Authorization", "")
        if given:
            hub.tokens.append((path, given))
        is_storage = path.startswith("/storage/")
        if hub.failing and not is_storage:
            self._refuse(hub.failing.pop(0), "")
        elif hub.token and not is_storage and given != f"Bearer {hub.token}":
            self._refuse(401, "RepoNotFound")
        elif path.startswith("/api/"):
            self._answer_api(path)
        elif is_storage:
            _, _, digest, name = path.split("/", 3)
            self._send_file(name, self._stored()[digest], {})
        else:
            self._answer_file(path)

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_words: object) -> None:
        """Print nothing."""

    def _stored(self) -> dict[str, bytes]:
        every = [f for r in self.hub.repositories.values() for f in (r.files, *r.commits.values())]
        return {hashlib.sha256(data).hexdigest(): data for fs in every for data in fs.values()}

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _files(self, repository: Repository, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = repository.commit if revision == "main" else revision
        files = repository.commits.get(commit)
        return None if files is None else (commit, files)

    def _answer_api(self, path: str) -> None:
        words = path.split("/")[2:]
        repository = self.hub.repositories.get("/".join(words[:3]))
        if repository is None:
            self._refuse(401 if not self.hub.token else 404, "RepoNotFound")
            return
        revision = words[4] if len(words) > 4 else "main"
        found = self._files(repository, revision)
        if found is None:
            self._refuse(404, "RevisionNotFound")
            return
        commit, files = found
        if words[3:4] != ["tree"]:
            self._send_json({"id": "/".join(words[1:3]), "sha": commit})
            return
        entries = [_entry(name, data) for name, data in files.items()]
        for entry in entries:
            entry["size"] = self.hub.claimed.get(str(entry["path"]), entry["size"])
        self._send_json(entries)

    def _answer_file(self, path: str) -> None:
        before, _, after = path.partition("/resolve/")
        name = before.strip("/")
        kind = name if name.startswith("datasets/") else f"models/{name}"
        repository = self.hub.repositories.get(kind)
        if repository is None:
            self._refuse(401, "RepoNotFound")
            return
        if repository.is_gated:
            self._refuse(403, "GatedRepo")
            return
        revision, _, file = after.partition("/")
        found = self._files(repository, revision)
        if found is None or file not in found[1]:
            self._refuse(404, "RevisionNotFound" if found is None else "EntryNotFound")
            return
        commit, files = found
        data = files[file]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_git_hash(data)}"'}
        if not is_large(file):
            self._send_file(file, data, headers)
            return
        digest = hashlib.sha256(data).hexdigest()
        port = self.server.server_address[1]
        self.send_response(302)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("X-Linked-Etag", f'"{digest}"')
        self.send_header("X-Linked-Size", str(len(data)))
        # Another host, as the storage of the real one.
        self.send_header(
            "Location", f"http://localhost:{port}/storage/{digest}/{file}?Signature=s3"
        )
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, name: str, data: bytes, headers: dict[str, str]) -> None:
        hub, start = self.hub, 0
        span = self.headers.get("Range", "")
        if span:
            start = int(span.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if span else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        base = name.rpartition("/")[2]
        if hub.wrong.get(base, 0):
            hub.wrong[base] -= 1
            data = bytes([data[0] ^ 1]) + data[1:]
        breaks = hub.broken.get(base, [])
        end = len(data) if not breaks else start + breaks.pop(0)
        for offset in range(start, min(end, len(data)), BLOCK_BYTES):
            block = data[offset : min(end, offset + BLOCK_BYTES)]
            self.wfile.write(block)
            if hub.bytes_per_s is not None:
                time.sleep(len(block) / hub.bytes_per_s)
        if end < len(data):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": _git_hash(data),
    }
    if is_large(name):
        digest = hashlib.sha256(data).hexdigest()
        entry["oid"] = _git_hash(digest.encode())  # of the pointer
        entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 130}
    return entry


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_request: object) -> None:
        """Print nothing: clients are killed while they are answered."""


@contextmanager
def serve(make: Callable[[], Hub] = Hub) -> Iterator[Hub]:
    """Run a hub on this machine."""
    hub = make()
    with _Server(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub})) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        hub.address = f"http://127.0.0.1:{server.server_port}"
        yield hub
        server.shutdown()
