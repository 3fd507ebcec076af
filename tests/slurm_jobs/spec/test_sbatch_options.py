import pytest

from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.model_keys import known_keys
from slurm_jobs.spec.sbatch_options import FORMS, OWN_SLURM_KEYS, option_hint
from slurm_jobs.spec.validation import validate_values
from slurm_jobs.spec.yaml_values import read_yaml

KNOWN = known_keys(Resources, ())


def test_every_key_of_resources_that_an_option_is_sent_to_has_a_form_that_is_taken() -> None:
    of_resources = {own for own in OWN_SLURM_KEYS.values() if own.startswith("resources.")}
    assert of_resources == set(FORMS)
    for own, form in FORMS.items():
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
