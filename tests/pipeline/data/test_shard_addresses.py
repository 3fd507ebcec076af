"""Shards at addresses that do not answer, read by webdataset from a server of the test's own."""

from __future__ import annotations

import base64
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import webdataset as wds

from pipeline.data.shard_addresses import address_problem


class Server(http.server.BaseHTTPRequestHandler):
    """A server that answers with the status in the path, and an empty body."""

    logins: ClassVar[list[tuple[int, str | None]]] = []
    """Port and login of each request."""

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        self.logins.append((port, self.headers["Authorization"]))
        word = self.path.strip("/").partition("/")[0]
        if word == "login":
            login = base64.b64encode(b"user:pass@word").decode()
            word = "200" if self.headers["Authorization"] == f"Basic {login}" else "401"
        self.send_response(int(word))
        if word == "302":
            self.send_header("Location", self.path.partition("?to=")[2])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "logins", [])
    with serving() as address:
        yield address


@pytest.fixture
def other_server() -> Iterator[str]:
    with serving() as address:
        yield address


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


@pytest.mark.parametrize("path", ["/404/data@{other}/a.tar", "/302/a.tar?to=http://{other}/404"])
def test_the_login_is_sent_to_the_server_of_the_address_only(
    server: str, other_server: str, path: str
) -> None:
    other = other_server.removeprefix("http://")
    address = server.replace("://", "://user:secret@") + path.format(other=other)
    problem = address_problem(OSError(address))
    assert problem is not None
    assert "its server answered 404" in problem
    assert "secret" not in problem
    (port, login), *redirected = Server.logins
    assert server.endswith(f":{port}")
    assert login is not None
    assert all(login is None for _, login in redirected)


@pytest.mark.parametrize("user", ["user:secret/word", "127.0.0.1:secret/word", "user:/word"])
def test_nothing_is_sent_where_hiding_the_password_leaves_another_server(
    server: str, user: str
) -> None:
    problem = address_problem(OSError(server.replace("://", f"://{user}@") + "/404/a.tar"))
    assert problem is not None
    assert "it is not a valid address" in problem
    assert Server.logins == []


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
