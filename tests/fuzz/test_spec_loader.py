"""Whatever stands in a spec or a profile, and whatever is set: a spec, or problems with places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.checked_spec import LoadedSpec
from tests.fuzz.budget import bounded, examples

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted(path for path in (ROOT / "configs").glob("*.yaml"))
STEERING = "\x00\x07\x08\x0b\x0c\x1b[2J\x7f\x85\x9b\u061c\u200b\u200f\u2028\u202e\u2066\ufeff\ud800"
HOSTILE = st.sampled_from(
    [
        *("!!python/object/apply:os.system ['touch pwned']", "!!python/name:os.system", "!a b"),
        *(
            "&a [*a]",
            "*none",
            "{<<: *a}",
            "<<",
            "---",
            "...",
            "%YAML 9.9",
            "? {a: b}",
            "!!binary x",
        ),
        *(
            "9" * 5000,
            "-" + "9" * 5000,
            "1e999999",
            "0x" + "f" * 5000,
            ".inf",
            ".nan",
            "1:30",
            "no",
        ),
        *("[" * 3000, "{a: " * 3000, "- " * 3000, "[" * 40 + "]" * 40, "'" * 99, "\t", "|", ">-"),
        *(json.dumps(STEERING), repr(STEERING), '"\\ud800"', '"\\UFFFFFFFF"', "\u202egnp.exe"),
        *(
            "${a.output_dir}",
            "${" * 500,
            "$(touch pwned)",
            "`touch pwned`",
            "../" * 500,
            "/dev/zero",
        ),
        *("{}", "[]", "null", "true", "''", "~", "a" * 10_000, "[" + "a, " * 3000 + "]"),
    ]
)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    *(st.sampled_from(["train", "preprocess", "local", "$HOME", STEERING]), HOSTILE),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def read(content: bytes, folder: Path, *overrides: str) -> LoadedSpec | None:
    """The spec, or None where it has problems, each told with its place and plainly."""
    file = folder / "spec.yaml"
    file.write_bytes(content)
    loaded, problems = None, []
    with bounded():
        try:
            loaded = load(file, overrides=overrides)
        except SpecError as error:
            problems = list(error.problems)
    assert (loaded is None) == bool(problems)
    for problem in problems:
        assert problem.file
        assert problem.message.isprintable(), problem.message
        assert (problem.line >= 1 and problem.column >= 1) or overrides, problem
    assert not (folder / "pwned").exists()
    assert not Path("pwned").exists()
    return loaded


@examples(50)
@given(st.binary(max_size=400))
def test_any_bytes(folder: Path, content: bytes) -> None:
    read(content, folder)


@examples(33)
@given(VALUES)
def test_any_values(folder: Path, value: object) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    read(text.encode(errors="surrogatepass"), folder)


@examples(33)
@given(VALUES, st.sampled_from(["stages", "setup", "environment", "cluster", "name", "code"]))
def test_any_value_of_a_key_at_the_top(folder: Path, value: object, key: str) -> None:
    spec = {"name": "a", "cluster": "local", "stages": {"s": {"shell": "true"}}, key: value}
    read(yaml.safe_dump(spec).encode(errors="surrogatepass"), folder)


STAGE_KEYS = ("run", "shell", "after", "array", "config", "resources", "matrix", "environment")


@examples(50)
@given(
    VALUES, st.sampled_from([*STAGE_KEYS, "retries", "setup"]), st.sampled_from(["run", "shell"])
)
def test_any_value_of_a_key_of_a_stage(folder: Path, value: object, key: str, how: str) -> None:
    stage = {how: "train" if how == "run" else "true", key: value}
    spec = {"name": "a", "cluster": "local", "stages": {"s": stage}}
    read(yaml.safe_dump(spec).encode(errors="surrogatepass"), folder)


@examples(40)
@given(st.data())
def test_mutations_of_the_shipped_specs(folder: Path, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(SPECS)).read_text().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key, _, value = lines[at].partition(":")
        how = data.draw(st.integers(0, 6))
        lines[at] = {
            0: f"{key}: {data.draw(HOSTILE)}",
            1: f"{data.draw(HOSTILE)}: {value}",
            2: lines[at][: data.draw(st.integers(0, len(lines[at])))],
            3: f" {lines[at]}",
            4: lines[data.draw(st.integers(0, len(lines) - 1))],
            5: f"{key}:{value}{data.draw(st.text(max_size=5))}",
            6: f"{lines[at]} {STEERING}",
        }[how]
    read("\n".join(lines).encode(errors="surrogatepass"), folder)


@examples(33)
@given(st.data())
def test_mutated_bytes_of_the_shipped_specs(folder: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(SPECS)).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    read(bytes(content), folder)


@examples(50)
@given(
    st.one_of(
        st.text(max_size=40), st.sampled_from(["stages.s.config", "stages.s", "name", "a.b"])
    ),
    st.one_of(st.text(max_size=40), HOSTILE),
)
def test_any_override(folder: Path, key: str, value: str) -> None:
    spec = b"name: a\ncluster: local\nstages: {s: {shell: 'true'}}\n"
    read(spec, folder, f"{key}={value}")


@examples(20)
@given(
    st.one_of(
        st.binary(max_size=200), HOSTILE.map(lambda v: f"setup: {v}".encode(errors="replace"))
    )
)
def test_any_profile(folder: Path, content: bytes) -> None:
    (folder / "p.yaml").write_bytes(content)
    read(b"name: a\ncluster: p.yaml\nstages: {s: {shell: 'true'}}\n", folder)


def test_a_billion_laughs_are_no_laughing_matter(folder: Path) -> None:
    lines = ["l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert read("\n".join(lines).encode(), folder) is None


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a [", "!!map {a: ", '{"a": '])
@pytest.mark.parametrize("depth", [60, 1000, 60_000])
def test_deep_nesting_is_a_problem(folder: Path, opening: str, depth: int) -> None:
    assert read(f"name: {opening * depth}".encode(), folder) is None
    assert read((opening * depth).encode(), folder) is None


@pytest.mark.parametrize("value", ["true", "5", "x", "{a: b}"])
@pytest.mark.parametrize("key", ["code", "environment"])
def test_a_wrong_type_is_refused_in_a_spec_with_a_function_of_the_user(
    folder: Path, key: str, value: str
) -> None:
    spec = f"name: a\ncluster: local\n{key}: {value}\nstages: {{s: {{run: 'fuz:f'}}}}\n"
    (folder / "fuzz.py").touch()
    assert read(spec.encode(), folder) is None


def test_a_byte_that_is_not_utf8_is_reported_at_its_line_and_column(folder: Path) -> None:
    (folder / "spec.yaml").write_bytes("name: a\nsetup: é\x80".encode("latin-1"))
    with pytest.raises(SpecError) as error:
        load(folder / "spec.yaml")
    (problem,) = error.value.problems
    assert (problem.line, problem.column) == (2, 8)
    assert "0xe9" in problem.message
