import json
import pwd
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.marked_paths import absolute, references
from tests.slurm_jobs.spec.conftest import Check

SPEC = """\
name: a
cluster: local
runs_dir: {runs_dir}
stages:
  prep:
    run: preprocess
    config:
      manifest: {manifest}
      processor: {processor}
"""


def spec(manifest: str = "m.csv", processor: str = "proc", runs_dir: str = "runs") -> str:
    return SPEC.format(manifest=manifest, processor=processor, runs_dir=runs_dir)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "specs"
    (inner / "proc").mkdir(parents=True)
    for name in ("tokenizer.json", "preprocessor_config.json", "processor_config.json"):
        (inner / "proc" / name).write_text("{}")
    (inner / "proc/chat_template.jinja").touch()
    for place in (inner, tmp_path):
        (place / "a.png").write_bytes(b"GIF89a")
    (inner / "m.csv").write_text("image_path,text\na.png,a\n")
    (inner / "a.png").write_bytes(b"GIF89a")
    (tmp_path / "up.csv").write_text("image_path,text\na.png,a\n")
    return inner


def loaded(folder: Path, text: str) -> LoadedSpec:
    (folder / "spec.yaml").write_text(text)
    return load(folder / "spec.yaml")


def config(folder: Path, **paths: str) -> dict[str, str]:
    return loaded(folder, spec(**paths)).spec.stages["prep"].config


def problem(folder: Path, text: str, *overrides: str) -> str:
    """Return the message of the one problem."""
    (folder / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load(folder / "spec.yaml", overrides=overrides)
    (found,) = caught.value.problems
    return found.message


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


def test_a_python_is_a_path_only_if_it_has_a_slash(folder: Path) -> None:
    def python(given: str) -> str | None:
        text = spec().replace("    config:", f"    python: {given}\n    config:")
        return loaded(folder, text).spec.stages["prep"].python

    assert python("python3.11") == "python3.11"
    (folder / "envs/bin").mkdir(parents=True)
    (folder / "envs/bin/python").touch()
    assert python("envs/bin/python") == str(folder / "envs/bin/python")


def test_a_missing_python_is_refused_when_the_jobs_run_on_this_machine(
    folder: Path,
) -> None:
    text = spec().replace("    config:", "    python: /no/python\n    config:")
    with pytest.raises(SpecError, match="nothing at /no/python, and the jobs run on this machine"):
        loaded(folder, text)
    (folder / "ours.yaml").write_text("scheduler: slurm\n")
    elsewhere = text.replace("cluster: local", "cluster: ours.yaml")
    assert loaded(folder, elsewhere).spec.stages["prep"].python == "/no/python"


@pytest.mark.parametrize("processor", ["./Org/Model-2B", "models", "a/b/c"])
def test_what_is_no_name_on_a_hub_is_not_taken_for_one(folder: Path, processor: str) -> None:
    message = problem(folder, spec(processor=processor))
    assert "nothing at" in message
    assert "names on a hub" not in message


@pytest.mark.parametrize("name", ["x" * 5000, '"a\\x1bb"', "~nobody-here/x", "a//../b"])
def test_a_path_that_no_file_can_have_is_a_plain_problem(folder: Path, name: str) -> None:
    assert problem(folder, spec(manifest=name))


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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("file:///tmp/x", "is an address, and a path is needed: write `/tmp/x`"),
        ("file://localhost/tmp/x", "write `/tmp/x`"),
        ("file:/tmp/x", "write `/tmp/x`"),
        ("s3://bucket/x", "write a path of a file system that the nodes have"),
        ("GS://bucket", "is an address"),
        ("hf://datasets/a/b", "is an address"),
        ("ada@login:/scratch", "is an address"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "runs_dir: {}",
        "code: [{}]",
        "stages.prep.node_local_dir: {}",
        "stages.prep.python: {}",
        "stages.prep.config.manifest: {}",
        "stages.prep.config.image_root: {}",
    ],
)
def test_an_address_where_a_path_is_needed_is_refused(
    folder: Path, given: str, words: str, line: str
) -> None:
    key, value = line.format(given).split(": ")
    if value.startswith("["):
        value = f"['{value[1:-1]}']"
    assert words in problem(folder, spec(), f"{key}={value}")


def test_a_variable_that_holds_an_address_is_refused_in_a_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "s3://bucket")
    said = "in `$BUCKET/x` holds an address (s3://...)"
    assert said in problem(folder, spec(), "runs_dir=$BUCKET/x")


@pytest.mark.parametrize(
    "placeholder", ["%u", "%j", "{user}", "{{ user }}", "<user>", "%USER%", "{run.name}"]
)
def test_an_unknown_placeholder_is_refused_unless_its_folder_exists(
    folder: Path, placeholder: str
) -> None:
    given = f"runs_dir='{folder}/{placeholder}'"
    assert "would be part of the folder's name" in problem(folder, spec(), given)
    (folder / placeholder).mkdir()
    load(folder / "spec.yaml", overrides=(given,))


@pytest.mark.parametrize("given", ["a:b/c", "100%/x", "50% done", "{1..3}", "a<b", "runs-%"])
def test_a_name_with_odd_characters_is_a_name(folder: Path, given: str) -> None:
    (folder / "spec.yaml").write_text(spec())
    loaded_spec = load(folder / "spec.yaml", overrides=(f"runs_dir='{given}'",)).spec
    assert loaded_spec.runs_dir == f"{folder}/{given}"


def test_a_path_that_is_not_relative_is_not_called_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for given in ("~/no.jsonl", "$HOME/no.jsonl"):
        said = f"nothing at {folder}/no.jsonl (written as `{given}`)"
        assert said in problem(folder, spec(manifest=given))
