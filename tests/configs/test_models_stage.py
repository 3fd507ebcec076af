"""The stage `models` of the recipes: a failed download names the model and the remedy."""

from __future__ import annotations

import http.server
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from huggingface_hub import constants

from slurm_jobs.base.errors import StageConfigError, StageError
from tests.contexts import make_context

MODELS = {"vision": "google/siglip", "language": "Qwen/small"}


@pytest.fixture(scope="module")
def recipes() -> ModuleType:
    file = Path(__file__).parents[2] / "configs/recipes.py"
    spec = importlib.util.spec_from_file_location("recipes", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipes"] = module
    spec.loader.exec_module(module)
    return module


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that answers every request with an error."""

    status, code = 404, ""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("X-Error-Code", self.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Hub,), {})) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        use(monkeypatch, f"http://127.0.0.1:{server.server_port}")
        yield server.RequestHandlerClass
        server.shutdown()


def test_a_node_without_network_is_reported_with_the_model_and_the_resume(
    recipes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(StageError) as caught:
        recipes.models({"models": MODELS}, make_context("models", tmp_path))
    message = str(caught.value)
    assert "download google/siglip from http://127.0.0.1:9: node-0 has no network" in message
    assert "`hf download Qwen/small --local-dir FOLDER/language`" in message
    option = "--set stages.models.config.source=FOLDER"
    assert message.endswith(f"then `slurm-jobs resume {tmp_path} {option}`")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("RepoNotFound", "it has no such repository, or a private one"),
        ("GatedRepo", "it is gated. Accept its terms at "),
        ("RevisionNotFound", "it has no such revision"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_named(
    recipes: ModuleType, hub: type[Hub], tmp_path: Path, code: str, problem: str
) -> None:
    hub.code = code
    config = {"models": MODELS, "revisions": {"vision": "v9"} if "Revision" in code else {}}
    with pytest.raises(StageConfigError, match=rf"google/siglip .*from http://[\d.:]*: {problem}"):
        recipes.models(config, make_context("models", tmp_path))


def test_a_hub_that_is_down_may_be_tried_again(
    recipes: ModuleType, hub: type[Hub], tmp_path: Path
) -> None:
    hub.status = 501
    with pytest.raises(StageError, match=r"it answered 501. Resume the run later"):
        recipes.models({"models": MODELS}, make_context("models", tmp_path))


def test_a_folder_takes_the_place_of_a_download_in_part(
    recipes: ModuleType, tmp_path: Path
) -> None:
    context = make_context("models", tmp_path)
    (context.output_dir / "vision/.cache").mkdir(parents=True)
    config = {"models": {"vision": "google/siglip"}, "source": str(tmp_path / "have")}
    with pytest.raises(StageConfigError, match=f"source: {tmp_path}/have/vision has no config"):
        recipes.models(config, context)
    (tmp_path / "have/vision").mkdir(parents=True)
    (tmp_path / "have/vision/config.json").write_text("{}")
    for _attempt in range(2):
        recipes.models(config, context)
        assert (context.output_dir / "vision").resolve() == tmp_path / "have/vision"


def test_a_download_never_writes_into_the_folder_of_an_earlier_source(
    recipes: ModuleType, hub: type[Hub], tmp_path: Path
) -> None:
    hub.code = "RepoNotFound"
    context = make_context("models", tmp_path)
    (tmp_path / "have").mkdir()
    (context.output_dir / "vision").symlink_to(tmp_path / "have")
    with pytest.raises(StageConfigError, match="it has no such repository"):
        recipes.models({"models": MODELS}, context)
    assert not (context.output_dir / "vision").is_symlink()
    assert list((tmp_path / "have").iterdir()) == []
