"""Failed downloads, provoked on huggingface_hub and transformers by a hub of the test's own."""

from __future__ import annotations

import errno
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download

from pipeline.models.hub import DOWNLOAD_ERRORS, DownloadFailure, download_failure, failure_text
from pipeline.models.loading.pretrained import find_folder, read_hugging_face_config
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.formats.configs.model_parts import ModelConfig

MODEL = "some/model"


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that answers every request with one error, or hangs up for the status 0."""

    status, code = 404, ""

    def do_GET(self) -> None:
        if not self.status:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(self.status)
        self.send_header("X-Error-Code", self.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {})) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        # Of single files, as transformers fetches them.
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server.RequestHandlerClass
        server.shutdown()


def failed_download() -> DownloadFailure:
    with pytest.raises(DOWNLOAD_ERRORS) as caught:
        snapshot_download(MODEL)
    failure = download_failure(caught.value)
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (401, "", "token", "answered 401, .*`hf auth login`"),
        (401, "RepoNotFound", "no repository", "no such repository, or a private one"),
        (403, "", "forbidden", "answered 403, so your token may not read it"),
        (403, "GatedRepo", "gated", "Accept its terms at http.*/some/model, and export the HF_TO"),
        (404, "", "no repository", "no such repository"),
        (404, "RepoNotFound", "no repository", "no such repository"),
        (404, "RevisionNotFound", "no revision", "no such revision"),
        (404, "EntryNotFound", "no file", "a file that is needed is not in the repository"),
        (429, "", "hub fault", "answered 429"),
        (501, "", "hub fault", "answered 501"),
        (0, "", "interrupted", "the connection ended"),
    ],
)
def test_each_answer_of_the_hub_is_named_with_its_remedy(
    hub: type[Hub], status: int, code: str, kind: str, words: str
) -> None:
    hub.status, hub.code = status, code
    failure = failed_download()
    assert failure.kind == kind
    assert failure.is_transient == (kind in {"hub fault", "interrupted"})
    text = failure_text(failure, MODEL, "v9")
    start = f"some/model at revision v9 cannot be downloaded from {constants.ENDPOINT}: "
    assert text.startswith(start)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(text)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://hub.invalid"])
def test_without_a_network_the_command_for_the_login_node_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-07")
    failure = failed_download()
    assert failure.kind == "unreachable"
    text = failure_text(failure, MODEL, "v9")
    assert f"from {address}: gpu-07 does not reach it (ConnectError: " in text
    assert f"`HF_HOME={tmp_path} hf download some/model --revision v9`" in text
    assert '`HF_HUB_OFFLINE: "1"`' in text


def test_offline_the_cache_that_lacks_the_model_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    failure = failed_download()
    assert failure.kind == "offline"
    assert f"not in the cache {tmp_path}/hub, and HF_HUB_OFFLINE is set" in failure_text(
        failure, MODEL
    )


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, "no space", "the disk of /full/file is full"),
        (errno.EDQUOT, "no space", "the disk of /full/file is full"),
        (errno.EACCES, "no access", "cannot write to /full/file"),
        (errno.EROFS, "no access", "cannot write to /full/file"),
    ],
)
def test_a_disk_that_takes_no_file_is_named(number: int, kind: str, words: str) -> None:
    wrapped = OSError("Can't load the configuration")
    wrapped.__cause__ = OSError(number, "no", "/full/file")
    failure = download_failure(wrapped)
    assert failure is not None
    assert failure.kind == kind
    assert words in failure_text(failure, MODEL)
    assert "HF_HOME" in failure_text(failure, MODEL)


def test_an_error_of_the_files_is_no_failed_download() -> None:
    assert download_failure(ValueError("Unrecognized model")) is None


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((403, "GatedRepo"), StageConfigError, "it is gated"),
        ((404, "RepoNotFound"), StageConfigError, "no such repository"),
        ((0, ""), StageError, "the connection ended"),
    ],
)
@pytest.mark.parametrize("load", [read_hugging_face_config, find_folder])
def test_a_model_that_cannot_be_downloaded_is_named(
    hub: type[Hub], load, answer: tuple[int, str], error: type[StageError], words: str
) -> None:
    hub.status, hub.code = answer
    match = f"^model some/model cannot be downloaded from http.*{words}.*set model.path to a folder"
    with pytest.raises(error, match=match) as caught:
        load(ModelConfig(type="hugging_face", name=MODEL))
    assert type(caught.value) is error
