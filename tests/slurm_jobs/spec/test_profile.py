from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.load import read_profile

SPEC = "name: a\ncluster: profile.yaml\nstages: {s: {shell: make}}\n"


def problems(folder: Path, text: str) -> list[str]:
    file = folder / "profile.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_profile(str(file), disk_files())
    assert all(problem.file == str(file) for problem in caught.value.problems)
    return [f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems]


def test_an_unknown_key_suggests_the_nearest(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, "scheduler: slurm\nenviroment: {A: b}\n")
    assert line.startswith("2:1: unknown key `enviroment`; did you mean `environment`?")


def test_options_with_a_key_of_their_own_are_refused_at_their_key(tmp_path: Path) -> None:
    lines = problems(tmp_path, "slurm:\n  account: x\n  time: 3\ngpu_slurm: {gpus_per_node: 2}\n")
    assert lines == [
        "3:3: slurm: `time` has a key of its own: resources.timeout_min",
        (
            "4:13: gpu_slurm: `gpus_per_node` has a key of its own: "
            "resources.gpus_per_node and resources.gpu"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "scheduler: slrum",
            "1:12: scheduler: found the text `slrum`; allowed: `slurm` or `local`;",
        ),
        ("- a\n- b", "1:1: the file: expected keys and values, found a list of 2"),
        ("max_cpus: 0", "1:11: max_cpus: must be greater than or equal to 1, found `0`"),
        ("environment: {LD-PATH: x}", "1:15: environment: `LD-PATH` is not a valid name"),
        ("environment: {SLURM_JOBS_RANK: x}", "1:15: environment: `SLURM_JOBS_RANK` is set by"),
        ("node_local_dir: ''", "1:17: node_local_dir: must not be empty"),
        ("slurm: {account: no}", "1:18: `no` is a truth value"),
        ('slurm: {account: "a\\nb"}', "1:18: slurm.account: `a\\nb` holds a line break"),
    ],
)
def test_a_mistake_is_reported_at_its_line_of_the_profile(
    tmp_path: Path, text: str, line: str
) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(line)


def test_a_missing_profile_is_reported_in_the_spec_with_its_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace("profile.yaml", "locla"))
    with pytest.raises(SpecError) as caught:
        load(tmp_path / "spec.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/spec.yaml:2:10: cluster: no profile at {tmp_path}/locla; did you mean "
        "`local`? (allowed: a file, `local`, `auto`)"
    )


def test_an_empty_profile_is_a_cluster_with_nothing_special(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text("# nothing to say\n")
    assert read_profile(str(tmp_path / "profile.yaml"), disk_files()).scheduler == "slurm"


def test_paths_of_a_profile_are_relative_to_the_profile(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    file = tmp_path / "clusters" / "ours.yaml"
    file.write_text("python: ../envs/bin/python\nnode_local_dir: $TMPDIR\n")
    (tmp_path / "spec.yaml").write_text(SPEC.replace("profile.yaml", "clusters/ours.yaml"))
    profile = load(tmp_path / "spec.yaml").profile
    assert profile is not None
    assert profile.python == str(tmp_path / "envs/bin/python")
    assert profile.node_local_dir == "$TMPDIR"
