"""Shards at addresses that do not answer, read by webdataset from a server of the test's own."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
import webdataset as wds

from pipeline.data.shard_addresses import address_problem


class Server(http.server.BaseHTTPRequestHandler):
    """A server that answers every request with one status, and an empty body."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.strip("/").partition("/")[0]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def problem_of(address: str) -> str | None:
    shards = wds.WebDataset([address], shardshuffle=False, nodesplitter=None)
    with pytest.raises(Exception) as caught:
        next(iter(shards))
    return address_problem(caught.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("404/a.tar", "its server answered 404; correct the address"),
        ("403/a.tar", "its server answered 403; correct the address"),
        ("200/a.tar", "it answers now, so the connection ended before"),
    ],
)
def test_the_answer_of_a_shards_server_is_named(server: str, path: str, words: str) -> None:
    problem = problem_of(f"{server}/{path}?signature=secret")
    assert problem is not None
    assert problem.startswith(f"the shard {server}/{path} of the stream cannot be read: {words}")
    assert "secret" not in problem


def test_a_node_without_network_and_the_way_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-07")
    # As webdataset raises it after curl has tried for a minute.
    error = OSError("curl: exit 6")
    error.args = (*error.args, object(), "http://hub.invalid/a.tar")
    problem = address_problem(error)
    assert problem is not None
    assert "gpu-07 does not reach it (gaierror: " in problem
    assert "copy the shards to a folder that all nodes see" in problem


def test_a_missing_file_is_no_address() -> None:
    assert problem_of("/nowhere/a.tar") is None
