"""Paths of a spec: where they start, and which names in them are expanded."""

import json
import pwd
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.marked_paths import absolute, references
from tests.slurm_jobs.spec.conftest import Check
from tests.slurm_jobs.spec.path_specs import folder, loaded, spec

__all__ = ["folder"]


def config(folder: Path, **paths: str) -> dict[str, str]:
    return loaded(folder, spec(**paths)).spec.stages["prep"].config


def test_a_relative_path_starts_at_the_file_of_the_spec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir("/")
    values = config(folder)
    assert values["manifest"] == str(folder / "m.csv")
    assert values["processor"] == str(folder / "proc")
    assert loaded(folder, spec(runs_dir="../runs")).spec.runs_dir == str(tmp_path / "runs")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("./x/../../runs", "UP/runs"),
        ("UP/runs", "UP/runs"),
        ("~/runs", "HERE/runs"),
        ("$PROJECT/r", "UP/r"),
        ("$PROJECT/$NAME_HERE.csv", "UP/m.csv"),
        ("${PROJECT}/${NAME_HERE}.csv", "UP/m.csv"),
        ("./${NAME_HERE}.csv", "HERE/m.csv"),
        ("/scratch/$NAME_HERE/runs", "/scratch/m/runs"),
        ("~root/runs", f"{pwd.getpwnam('root').pw_dir}/runs"),
        ("a$$NAME_HERE/r", "HERE/a$NAME_HERE/r"),  # two dollar signs are one
        ("./~x", "HERE/~x"),
    ],
)
def test_home_and_variables_are_those_of_the_login_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, path: str
) -> None:
    for name, value in {"HOME": folder, "PROJECT": folder.parent, "NAME_HERE": "m"}.items():
        monkeypatch.setenv(name, str(value))
    given = given.replace("UP", str(folder.parent))
    path = path.replace("HERE/", f"{folder}/", 1).replace("UP", str(folder.parent))
    assert loaded(folder, spec(runs_dir=f"'{given}'")).spec.runs_dir == path
    assert absolute("../../../../up", "/a/b") == "/up"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("$NOT_SET_HERE/r", "`NOT_SET_HERE` is set here; set it, or write the folder"),
        ("/scratch/${NOT_SET_HERE}/r", "no environment variable `NOT_SET_HERE` is set here"),
        ("/scratch/$SCRATCHDIRX", "did you mean `$SCRATCHDIR`?"),
        ("$EMPTY_HERE/r", "the environment variable `EMPTY_HERE` is empty here"),
        ("~nobody-here/r", "no user `nobody-here`; write `~/nobody-here`"),
        ("${X:-a}/r", "`${X:-a}` is not a "),
        ("/a/$(whoami)", "`$` is not a variable"),
        ("a$", "for a dollar sign write `$$`"),
    ],
)
@pytest.mark.parametrize("where", ["runs_dir", "manifest", "processor", "cluster", "python"])
def test_a_name_that_cannot_be_expanded_is_an_error_at_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, words: str, where: str
) -> None:
    monkeypatch.setenv("SCRATCHDIR", "/scratch")
    monkeypatch.setenv("EMPTY_HERE", "")
    given = json.dumps(given if where != "python" else f"{given}/python")
    text = spec(**{where: given} if where in {"runs_dir", "manifest", "processor"} else {})
    text = text.replace(
        "cluster: local", f"cluster: {given}" if where == "cluster" else "cluster: local"
    )
    text += f"    python: {given}\n" if where == "python" else ""
    with pytest.raises(SpecError) as caught:
        loaded(folder, text)
    (problem,) = caught.value.problems
    assert words in problem.message
    line = text.splitlines()[problem.line - 1]
    assert line.strip() == f"{where}: {given}"
    assert problem.column == line.index(given) + 1


def test_a_reference_and_a_variable_share_a_path(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME_HERE", "m")
    text = (
        "name: a\ncluster: local\nstages:\n  r: {shell: make}\n  p:\n    run: preprocess\n"
        "    after: r\n"
        "    config: {manifest: '${r.output_dir}/$NAME_HERE/${NAME_HERE}.csv', processor: "
        "'${r.output_dir}/p'}\n"
    )
    assert check(text) == []
    (line,) = check(text.replace("${NAME_HERE}.csv", "${r}.csv"))
    assert "`${r}` is not a reference; `${stage.output_dir}`" in line


def test_addresses_of_shards_are_left_and_paths_are_expanded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", "/d")
    (folder / "dataset.json").write_text("{}")
    (folder / "spec.yaml").write_text(
        "name: a\ncluster: local\nstages:\n  t:\n    run: train\n    config: {dataset: ., device: "
        "cpu, strategy: single, num_steps: 1, reader: webdataset, stream: {urls: ['$FOLDER/a.tar', "
        "'https://h/{0..9}.tar', b.tar]}, model: {type: hugging_face, name: o/m}}\n"
    )
    found = load(folder / "spec.yaml").spec.stages["t"].config["stream"]["urls"]
    assert found == ["/d/a.tar", "https://h/{0..9}.tar", f"{folder}/b.tar"]


def test_the_node_local_folder_keeps_its_variables_for_the_node(folder: Path) -> None:
    text = spec().replace("    config:", "    node_local_dir: $TMPDIR/x\n    config:")
    assert loaded(folder, text).spec.stages["prep"].node_local_dir == "$TMPDIR/x"


def test_the_output_of_another_stage_is_left_for_the_node(check: Check) -> None:
    text = (
        "name: a\ncluster: local\nstages:\n  r: {shell: make}\n  p:\n    run: preprocess\n"
        "    after: r\n"
        "    config: {manifest: '${r.output_dir}/m.csv', processor: '${r.output_dir}/p'}\n"
    )
    assert check(text) == []
    (line,) = check(text.replace("'${r.output_dir}/m.csv'", "'x/${r.output_dir}/m.csv'"))
    assert "8:24" in line
    assert "must be at the start of the path" in line


def test_references_are_found_at_any_depth() -> None:
    values = {"a": ["x", {"b": "${s.output_dir}/1 ${t.output_dir}"}]}
    found = references(values, ("c",))
    assert found == [(("c", "a", 1, "b"), "s.output_dir"), (("c", "a", 1, "b"), "t.output_dir")]
