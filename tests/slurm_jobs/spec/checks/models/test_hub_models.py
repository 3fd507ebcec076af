"""Models on a hub, which `check` asks before anything is queued."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_jobs.commands.spec_reading import hub_configs
from slurm_jobs.commands.spec_reading.read_spec import load
from tests.hub_server import Hub, Repository, serve
from tests.slurm_jobs.spec.checks.models.started_models import spec, write_config
from tests.slurm_jobs.spec.conftest import Check

NAMED = "{type: hugging_face, name: some/model}"
DOWNLOADED = """\
name: a
cluster: local
stages:
  get: {{run: download, config: {{models: [{model}], datasets: [some/data]}}}}
  t:
    run: train
    after: get
    config:
      {{device: cpu, strategy: single, num_steps: 1, dataset: .,
       model: {{type: hugging_face, path: "${{get.output_dir}}/{path}"}}}}
"""


OF_RECIPE = """\
name: a
cluster: local
stages:
  get: {{run: "recipes:models", config: {{models: {{vlm: some/{model}}}{more}}}}}
  t:
    run: train
    after: get
    config:
      {{device: cpu, strategy: single, num_steps: 1, dataset: .,
       model: {{type: hugging_face, path: "${{get.output_dir}}/vlm"}}}}
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    with serve() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        for name in ("qwen2_5_vl", "bert"):
            files = {"config.json": json.dumps({"model_type": name}).encode()}
            served.repositories[f"models/some/{name}"] = Repository(files)
        served.repositories["models/some/data"] = Repository({"a.csv": b""})
        yield served


def notes_on(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "dataset.json").write_text("{}")
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    notes = load(file, to_submit=True).notes
    return [str(note).replace(f"{file}:", "", 1) for note in notes]


def named(name: str) -> str:
    return spec(NAMED.replace("some/model", f"some/{name}"))


def downloaded(name: str, **changes: str) -> str:
    return DOWNLOADED.format(**{"model": f"some/{name}", "path": f"some/{name}", **changes})


@pytest.mark.parametrize("of", [named, downloaded])
def test_a_model_that_can_be_trained_has_neither_problem_nor_note(
    hub: Hub, check: Check, tmp_path: Path, of
) -> None:
    assert check(of("qwen2_5_vl")) == []
    assert notes_on(tmp_path, of("qwen2_5_vl")) == []
    assert hub.requests[0] == "GET /some/qwen2_5_vl/resolve/main/config.json"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (named("bert"), "8:42", "some/bert: model_type is 'bert', .*that can be trained are"),
        (downloaded("bert"), "10:42", "some/bert: model_type is 'bert', .*can be trained are"),
        (named("data"), "8:42", "some/data: http://.* has no config.json in it"),
        (named("typo"), "8:42", "has no such model, or a private one .*correct the name"),
        (
            downloaded("bert", model="{repo: some/bert, revision: v9}"),
            *("10:42", "has no such revision of it"),
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_at_its_line(
    hub: Hub, check: Check, text: str, place: str, words: str
) -> None:
    (line,) = check(text)
    assert line.startswith(f"{place}: stages.t.config.model.")
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(line)


@pytest.mark.parametrize("source", ["", ", source: {folder}"])
def test_a_model_of_the_stage_that_init_writes_is_refused_too(
    hub: Hub, check: Check, tmp_path: Path, source: str
) -> None:
    write_config(tmp_path / "have", {})
    write_config(tmp_path / "have/vlm", {"model_type": "bert"})
    more = source.format(folder=tmp_path / "have")
    (line,) = check(OF_RECIPE.format(model="bert", more=more))
    assert "10:42: stages.t.config.model.path: some/bert: model_type is 'bert'" in line
    assert len(hub.requests) == (0 if source else 1)
    write_config(tmp_path / "have/vlm", {"model_type": "qwen2_5_vl"})
    assert check(OF_RECIPE.format(model="qwen2_5_vl", more=more)) == []


def test_a_private_model_is_noted_if_the_job_logs_in_itself(hub: Hub, tmp_path: Path) -> None:
    text = named("private").replace("stages:", "setup: ['export HF_TOKEN=$(cat t)']\nstages:")
    (note,) = notes_on(tmp_path, text)
    assert "or a private one that your token cannot read" in note


def test_without_a_hub_one_note_says_that_it_is_not_known(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = named("x") + named("y").partition("stages:\n")[2].replace("  t:", "  u:")
    (note,) = notes_on(tmp_path, two)
    assert "whether some/x and some/y can be trained is not known here, because HF_HUB_OFF" in note
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (note,) = notes_on(tmp_path, two)
    assert "because http://127.0.0.1:9 is not reached (" in note
    assert check(two) == []


def test_the_local_cache_comes_first(hub: Hub, check: Check, tmp_path: Path) -> None:
    folder = tmp_path / "hf-home/hub/models--some--bert"
    for name, text in (("refs/main", "c1"), ("snapshots/c1/config.json", '{"model_type": "x"}')):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (line,) = check(named("bert"))
    assert "model_type is 'x'" in line
    assert hub.requests == []


def test_a_slow_hub_takes_no_longer_than_the_limit(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_configs, "LIMIT_S", 0.2)
    hub.delay_s = 20.0
    start_s = time.monotonic()
    (note,) = notes_on(tmp_path, named("bert"))
    assert f"is not known here, because {hub.address} " in note
    assert time.monotonic() - start_s < 10


def test_the_token_goes_only_to_the_hub_of_the_users_own_environment(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    notes_on(tmp_path, named("qwen2_5_vl"))
    assert [value for _, value in hub.tokens] == ["Bearer hf_mine"]
    with serve() as other:
        other.repositories = hub.repositories
        line = f"environment: {{HF_ENDPOINT: '{other.address}'}}\nstages:"
        notes_on(tmp_path, named("qwen2_5_vl").replace("stages:", line))
        assert len(other.requests) == 1
        assert other.tokens == []


def test_a_spec_with_other_problems_asks_nobody(hub: Hub, check: Check) -> None:
    assert len(check(named("bert").replace("num_steps: 1", "num_steps: 0"))) == 1
    assert hub.requests == []
