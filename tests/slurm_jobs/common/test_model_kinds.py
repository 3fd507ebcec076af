from pipeline.models.families import FAMILIES
from slurm_jobs.common.model_kinds import WHOLE_TYPES


def test_whole_models_that_check_knows_are_the_families_that_can_be_trained() -> None:
    assert set(WHOLE_TYPES) == set(FAMILIES)
