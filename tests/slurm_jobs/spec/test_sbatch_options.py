import pytest

from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.model_keys import known_keys
from slurm_jobs.spec.sbatch_options import OPTION_FORMS, OWN_SLURM_KEYS, is_resource, option_hint
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.conftest import Check

KNOWN = known_keys(Resources, ())

SPEC = """\
name: a
cluster: {cluster}
stages:
  s:
    shell: make
    resources: {{slurm: {{{options}}}}}
"""


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("patition", "`patition` is not an option of sbatch; did you mean `partition`?"),
        ("node-list", "did you mean `nodelist`?"),
        ("mail_tpye", "did you mean `mail-type`?"),
        ("acount", "did you mean `account`?"),
        ("partion", "`partion` is not an option of sbatch; did you mean `partition`?"),
        ("exclusiv", "did you mean `exclusive`?"),
        ("gers", "did you mean `gres`?"),
        ("part", "did you mean `partition`?"),
        ("cons_traint", "did you mean `constraint`?"),
        ("walltime", "did you mean `time`?"),
        ("queue", "did you mean `partition`?"),
    ],
)
def test_what_is_nearly_an_option_of_sbatch_is_refused_with_the_nearest(
    check: Check, key: str, message: str
) -> None:
    (line,) = check(SPEC.format(cluster="local", options=f"qos: x, {key}: 1"))
    assert line.startswith("6:33: stages.s.resources.slurm: ")
    assert message in line


def test_options_of_a_profile_are_checked_too(check: Check) -> None:
    text = SPEC.format(cluster="c.yaml", options="qos: x")
    lines = check(text, c__yaml="slurm: {patition: cpu}\ngpu_slurm: {constriant: a}\n")
    assert ["`partition`" in lines[0], "`constraint`" in lines[1]] == [True, True]
    assert [line.partition(": ")[0] for line in lines] == ["c.yaml:1:9", "c.yaml:2:13"]


@pytest.mark.parametrize(
    "key",
    [
        *("partition", "mail-type", "mail_type", "mem_per_gpu", "segment"),
        # of the plugin pyxis, of others, and words that nobody knows
        *("container_image", "container-mounts", "container-writable", "no-container-mount-home"),
        *("ear", "ear-policy", "gpumode", "nvmps", "x11", "perf", "bee", "something-new"),
    ],
)
def test_options_of_newer_versions_and_of_plugins_are_passed_on(check: Check, key: str) -> None:
    assert check(SPEC.format(cluster="local", options=f"{key}: 1")) == []


def test_keys_that_stand_for_options_are_those_of_resources() -> None:
    assert {key for key in Resources.model_fields if is_resource(key)} == {
        *Resources.model_fields.keys() - {"slurm"}
    }


def test_every_key_of_resources_that_replaces_an_option_has_a_valid_form() -> None:
    of_resources = {own for own in OWN_SLURM_KEYS.values() if own.startswith("resources.")}
    assert of_resources == set(OPTION_FORMS)
    for own, form in OPTION_FORMS.items():
        document = read_yaml(f"{{{form}}}", "f")
        assert list(document.value) == [
            place.removeprefix("resources.") for place in own.split(" and ")
        ]
        assert validate_values(Resources, document, document.value, ())[1] == []


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("time", "12:00:00", "resources.timeout_min (`timeout_min: 720`)"),
        ("gres", "gpu:4", "resources.gpus_per_node and resources.gpu (`gpus_per_node: 4, gpu: a1"),
        ("gres", "lustre:1", "`gres` belongs under `slurm:`: write `slurm: {gres: lustre:1}`"),
        ("mem", "64G", "resources.mem_gb (`mem_gb: 64`)"),
        ("cpus-per-task", 8, "resources.cpus_per_task (`cpus_per_task: 8`)"),
        ("ntasks-per-node", 4, "resources.tasks_per_node (`tasks_per_node: 4`)"),
        ("gpus", 4, "resources.gpus_per_node and resources.gpu (`gpus_per_node: 4"),
        ("partition", "gpu", "`partition` belongs under `slurm:`: write `slurm: {partition: gpu}`"),
        ("account", "vlm", "`account` belongs under `slurm:`: write `slurm: {account: vlm}`"),
        ("qos", "off", '`qos` belongs under `slurm:`: write `slurm: {qos: "off"}`'),
        ("mail_type", ["END"], "`mail_type` belongs under `slurm:`"),
    ],
)
def test_an_option_of_sbatch_is_sent_to_its_place_with_the_form(
    key: str, value: object, hint: str
) -> None:
    assert hint in option_hint(key, KNOWN, value)
