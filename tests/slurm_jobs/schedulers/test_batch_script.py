import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.schedulers.batch_script import (
    dependency_text,
    gpu_options,
    mem_text,
    time_limit_text,
)
from tests.slurm_jobs.schedulers.scripts import FOLDER, scripts
from tests.slurm_jobs.worker.orders import order

GOLDEN = Path(__file__).resolve().parents[2] / "golden"

PROFILE = """\
python: /shared/env/bin/python
slurm: {account: vision, partition: cpu}
gpu_slurm: {partition: gpu, qos: long, exclusive: true}
setup: [module load cuda/12.6]
environment: {NCCL_DEBUG: WARN}
"""
SPEC = """\
name: shapes
cluster: cluster.yaml
environment: {GREETING: it's "$HOME" `x`}
stages:
  fetch:
    shell: make data
    resources: {timeout_min: 0.5}
  tokens:
    run: own.module:tokens
    after: fetch
    array: {num_slices: 400, max_running: 64}
    resources: {cpus_per_task: 4, mem_gb: 7.5, timeout_min: 60, slurm: {constraint: ib}}
  train:
    run: own.module:train
    after: [tokens, fetch]
    setup: [source env.sh]
    resources:
      {nodes: 2, tasks_per_node: 4, cpus_per_task: 8, gpus_per_node: 4, gpu: [a100, v100],
       timeout_min: 720, signal_lead_s: 300, slurm: {constraint: ib, no_requeue: true}}
  judge:
    run: own.module:judge
    after: {train: afterany, tokens: afternotok}
    resources: {gpus_per_node: 1, gpu: a100}
"""


@pytest.mark.parametrize("stage", ["fetch", "tokens", "train", "judge"])
def test_the_script_is_the_golden_one(stage: str) -> None:
    text = scripts(SPEC, PROFILE)[stage]
    golden = GOLDEN / f"{stage}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


NASTY = [
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "x\n#SBATCH --wrap=x\ntouch canary",
    "x; touch canary #",
    "x && touch canary",
    "%j\\",
    "é\u2028touch canary",
]
PLACES = {
    "name": "name: {text}\ncluster: cluster.yaml\nstages: {{s: {{shell: make}}}}\n",
    "stage": "name: a\ncluster: cluster.yaml\nstages: {{? {text} : {{shell: make}}}}\n",
    "runs_dir": "name: a\ncluster: cluster.yaml\nruns_dir: {text}\n"
    "stages: {{s: {{shell: make}}}}\n",
    "shell": "name: a\ncluster: cluster.yaml\nstages: {{s: {{shell: {text}}}}}\n",
}
STAGE = "name: a\ncluster: cluster.yaml\nstages:\n  s:\n    shell: make\n"
PLACES |= {
    "environment": STAGE + "    environment: {{A: {text}}}\n",
    "environment name": STAGE + "    environment: {{? {text} : x}}\n",
    "python": STAGE + "    python: {text}\n",
    "node_local_dir": STAGE + "    node_local_dir: {text}\n",
    "slurm value": STAGE + "    resources: {{slurm: {{comment: {text}}}}}\n",
    "slurm key": STAGE + "    resources: {{slurm: {{? {text} : x}}}}\n",
    "constraint": STAGE + "    resources: {{slurm: {{constraint: {text}}}}}\n",
    "gpu": STAGE + "    resources: {{gpus_per_node: 1, gpu: {text}}}\n",
    "gpus": STAGE + "    resources: {{gpus_per_node: 1, gpu: [a100, {text}]}}\n",
    "after": STAGE + "  t:\n    shell: make\n    after: {text}\n",
}


def yaml_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("\u2028", "\\u2028") + '"'


@pytest.mark.parametrize("place", PLACES)
def test_no_text_of_a_spec_is_executed_by_the_script(place: str, tmp_path: Path) -> None:
    for nasty in NASTY:
        spec = PLACES[place].format(text=yaml_text(nasty))
        try:
            rendered = scripts(spec)
        except SpecError:
            continue  # refused at check: it reaches no script
        for script in rendered.values():
            run_harmlessly(script, tmp_path)


def run_harmlessly(script: str, folder: Path) -> str:
    """Really run it under bash: nothing but the supervisor's command may be tried."""
    # sbatch reads options up to the first command, which is the first line of the set-up.
    head = script.partition("# setup")[0].split("\n")
    assert all(line == "" or line.startswith("#") for line in head)
    assert not any(line.startswith("#SBATCH --wrap") or line.endswith("\\'") for line in head)
    file = folder / "batch.sh"
    file.write_text(script, encoding="utf-8")
    result = subprocess.run(
        ["/bin/bash", str(file)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(path.name for path in folder.iterdir()) == ["batch.sh"], script
    return result.stderr


def test_values_arrive_in_the_job_as_they_were_written(tmp_path: Path) -> None:
    fake = tmp_path / "fake python"
    fake.write_text('#!/bin/bash\nprintf "%s\\0" "$A" "$@" > "$(dirname "$0")/out"\n')
    fake.chmod(0o755)
    value = "a 'b' \"c\" $HOME `d`\n#SBATCH e \\ é"
    spec = STAGE + f"    python: '{fake}'\n    environment: {{A: {yaml_text(value)}}}\n"
    (script,) = scripts(spec).values()
    subprocess.run(["/bin/bash", "-s"], input=script, text=True, check=True)
    words = (tmp_path / "out").read_text(encoding="utf-8").split("\0")[:-1]
    assert words[0] == value
    assert Path(words[1]).name == "start.py"
    assert words[2] == "task"


def test_a_failing_set_up_line_ends_the_job_before_the_stage(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/bash\ntouch {tmp_path}/started\n")
    fake.chmod(0o755)
    spec = STAGE + f"    python: {fake}\n    setup: ['false', 'true']\n"
    (script,) = scripts(spec).values()
    assert subprocess.run(["/bin/bash", "-s"], input=script, text=True, check=False).returncode == 1
    assert not (tmp_path / "started").exists()


def said_by_set_up(
    folder: Path, setup: list[str], profile: str = "scheduler: slurm\n"
) -> tuple[int, str]:
    """Exit code of a job whose set-up fails, and what it says of it."""
    (script,) = scripts(STAGE + f"    setup: {json.dumps(setup)}\n", profile).values()
    file = folder / "batch.sh"
    file.write_text(script)
    done = subprocess.run(["/bin/bash", file], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("profile", ["scheduler: slurm\n", "scheduler: local\n"])
def test_a_failing_set_up_line_is_named_in_the_jobs_log(tmp_path: Path, profile: str) -> None:
    told = (1, "the job ended in set-up line 2, exit code 1: false\n")
    assert said_by_set_up(tmp_path, ["true", "false", "true"], profile) == told


@pytest.mark.parametrize(
    ("setup", "code", "said"),
    [
        (["true", "(exit 7)"], 7, " line 2, exit code 7: ( exit 7 )"),
        (["if true; then", "false", "fi"], 1, " line 2, exit code 1: false"),
        (["true &&", "false"], 1, " line 2, exit code 1: false"),
        (["load() {", "false", "true", "}", "load x"], 1, " line 5, exit code 1: false"),
        (["true", "source ./env.sh"], 3, " line 2, exit code 3: source ./env.sh"),
        (["cat <<END", "  $HOME", "END", "exit 0"], 0, ": exit 0"),
        (["true", "kill -TERM $$"], -15, ": kill -TERM $$"),
        (["set -u", "echo 'a %s \\n' \"b\" | false"], 1, " line 2, exit code 1: false"),
        (["export HF_TOKEN=s3cr3t; false"], 1, " line 1, exit code 1"),
        (["exec > /dev/null 2>&1", "false"], 1, " line 2, exit code 1: false"),
    ],
)
def test_the_log_says_where_the_set_up_ended_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: list[str], code: int, said: str
) -> None:
    (tmp_path / "env.sh").write_text("true\nexit 3\n")
    monkeypatch.chdir(tmp_path)
    assert said_by_set_up(tmp_path, setup) == (code, f"the job ended in set-up{said}\n")


def test_a_set_up_that_succeeds_says_nothing_and_leaves_no_trap(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/bash\nexit 5\n")
    fake.chmod(0o755)
    profile = f"python: {fake}\n"
    for setup in (["set +e", "false", "true"], ["true \\"]):
        assert said_by_set_up(tmp_path, setup, profile) == (5, "")
    fake.unlink()
    code, said = said_by_set_up(tmp_path, ["true"], profile)
    assert code == 127
    assert "set-up" not in said


def test_a_stop_signal_does_not_end_a_job_that_has_no_handler_yet(
    tmp_path: Path,
) -> None:
    """Slurm sends it at once if the time limit is about as short as the lead."""
    fake = tmp_path / "python"
    fake.write_text("#!/bin/bash\nkill -USR2 $$\nexit 5\n")
    fake.chmod(0o755)
    assert said_by_set_up(tmp_path, ["kill -USR2 $$"], f"python: {fake}\n") == (5, "")


def test_a_percent_sign_in_a_folder_is_no_pattern_of_slurm() -> None:
    spec = STAGE.replace("stages:", "runs_dir: /a/50%-j/runs\nstages:")
    (script,) = scripts(spec).values()
    assert "/a/50%%-j/runs/" in script
    assert FOLDER in script


@pytest.mark.parametrize(("own", "expected"), [({}, "v100"), ({"constraint": "ib"}, "v100&ib")])
def test_a_gpu_type_that_is_kept_is_requested_as_the_feature_it_came_from(
    own: dict[str, str], expected: str
) -> None:
    """`--gpus-per-node=v100:4` is refused where GPUs have no types."""
    given = order(gpu=("a100", "v100"), slurm=own)
    kept = replace(given.resources, gpus_per_node=4, gpu_kept="v100")
    options = gpu_options(kept)
    assert options == {"gpus-per-node": 4, "constraint": expected}


def test_dependencies_are_written_as_slurm_reads_them() -> None:
    assert dependency_text({}) is None
    assert dependency_text({"afterok": ()}) is None
    clean, cut, mend = (
        JobKey("r.clean.1", "12"),
        JobKey("r.cut.2", "13_2"),
        JobKey("r.mend.3", "14"),
    )
    text = dependency_text({"afterok": (clean, cut), "afterany": (mend,)})
    assert text == "afterany:14,afterok:12:13_2"


@pytest.mark.parametrize(
    ("minutes", "text"), [(60, "60:00"), (0.5, "0:30"), (1.01, "1:01"), (720, "720:00")]
)
def test_a_time_limit_is_rounded_up_to_a_second(minutes: float, text: str) -> None:
    assert time_limit_text(minutes) == text


def test_memory_is_rounded_up_to_a_megabyte() -> None:
    assert (mem_text(7.5), mem_text(0.0001)) == ("7680M", "1M")
