"""In the place of a trial's process, as `start.py call CONTEXT`: does what its config says."""

import json
import os
import sys
import time
from pathlib import Path

context = json.loads(Path(sys.argv[2]).read_text())
does = context["config"].get(str(context["rank"]), "ends")
folder = Path(context["task_dir"])
(folder / "does").write_text(f"{does} {context['main_port']}")
if does == "hangs":
    time.sleep(600)
if does in ("fails", "fails at length"):
    message = "no room\nfor 3 GB" + " of weights" * (99 if does == "fails at length" else 0)
    error = {"type": "OutOfMemoryError", "message": message, "retryable": True}
    (folder / f"rank-{context['rank']:05d}.error.json").write_text(json.dumps(error))
    sys.exit(1)
if does.startswith("-"):
    os.kill(os.getpid(), -int(does))
sys.exit(int(does) if does.isdecimal() else 0)
