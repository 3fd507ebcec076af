"""A change that does not fit the config of a training is named and not tried."""

from tests.slurm_jobs.tuning.simulated import DATA_WAIT, facts, simulate_tuning
from tests.slurm_jobs.tuning.speeds import flat


def test_a_change_that_does_not_fit_the_config_is_named_and_not_tried():
    given = facts(600, strategy="fsdp2", sharding={"unit_min_params": 5})
    exposed = DATA_WAIT.__class__(rule="exposed-communication", title="t", ceiling="c", times=1.2)
    tuning, _ = simulate_tuning(given, flat, lambda _: [exposed])
    why = {one.name: one.why for one in tuning.not_tried}
    assert "leave sharding out" in why['strategy: "ddp"']
