"""One rank of the train stage as a process of its own, as the supervisor starts it.

Usage: python rank_process.py CONTEXTS_JSON RESULT_JSON
"""

import json
import sys
from pathlib import Path

from pipeline.train import run
from slurm_jobs.base.errors import SlurmJobsError
from slurm_jobs.base.processes.stop_requests import install_stop_handler
from slurm_jobs.formats.records.record_json import record_from_json
from slurm_jobs.formats.records.task_context import TaskContext


def main() -> int:
    install_stop_handler()
    (values,) = json.loads(Path(sys.argv[1]).read_text())
    context = record_from_json(TaskContext, values)
    try:
        result = run(context.config, context)
    except SlurmJobsError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    Path(sys.argv[2]).write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
