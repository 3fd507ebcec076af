"""Sources of a stage's status, and the age of what queries have said."""

from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.protocol import Answer, SourceProblem
from slurm_jobs.status.reconcile import reconcile
from tests.slurm_jobs.runs import META
from tests.slurm_jobs.runs import reconciled as run
from tests.slurm_jobs.status.stage_chain import PAIR


def test_a_stage_names_the_sources_of_what_decides_its_status() -> None:
    found = run(PAIR, {"b": "RUNNING"}, "a")
    assert (found.stage("a").sources, found.stage("b").sources) == (("record",), ("squeue",))


def test_problems_and_notes_are_passed_on_and_only_queries_have_an_age() -> None:
    said = Answer(
        problems=(SourceProblem("sacct", "down"),), notes=("no accounts",), asked_unix_s=7.0
    )
    found = reconcile(RunRecords(meta=META, stages=(), intents=(), records={}), said)
    assert (found.problems, found.notes) == (("sacct: down",), ("no accounts",))
    assert found.query_time_of(["record", "sacct"]) == 7.0
    assert found.query_time_of(["record", "ledger"]) is None
