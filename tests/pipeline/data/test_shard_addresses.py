"""Shards at addresses that do not answer, read by webdataset from a server of the test's own."""

from __future__ import annotations

import base64
import http.server
import threading
from collections.abc import Iterator

import pytest
import webdataset as wds

from pipeline.data.shard_addresses import address_problem


class Server(http.server.BaseHTTPRequestHandler):
    """A server that answers with the status in the path, and an empty body."""

    def do_GET(self) -> None:
        word = self.path.strip("/").partition("/")[0]
        if word == "login":
            login = base64.b64encode(b"user:pass@word").decode()
            word = "200" if self.headers["Authorization"] == f"Basic {login}" else "401"
        self.send_response(int(word))
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


@pytest.mark.parametrize("login", ["user:pass%40word", "user:pass@word", "user:pa/word"])
def test_the_password_in_an_address_is_not_shown(login: str) -> None:
    problem = address_problem(OSError(f"https://{login}@hub.invalid/a.tar?signature=a@b"))
    assert problem is not None
    assert "word" not in problem
    assert "signature" not in problem


@pytest.mark.parametrize("login", ["user:pass/word", "user:pass[word", "user:pass\u2100word"])
def test_a_login_that_is_no_part_of_an_address_is_to_be_written_otherwise(login: str) -> None:
    problem = address_problem(OSError(f"https://{login}@hub.invalid/a.tar"))
    assert problem is not None
    assert problem.startswith(
        "the shard https://hub.invalid/a.tar of the stream cannot be read: it"
    )
    assert "it is not a valid address; write special characters in it as %XX" in problem
    assert "word" not in problem


def test_the_password_in_an_address_is_used_to_ask_again(server: str) -> None:
    address = server.replace("://", "://user:pass%40word@") + "/login/a.tar"
    problem = address_problem(OSError(address))
    assert problem is not None
    assert problem.startswith(f"the shard {server}/login/a.tar of the stream")
    assert "it answers now" in problem


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
