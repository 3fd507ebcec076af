"""Words that other tools have for our verbs, and the answer to a word that is no verb."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

_WORDS = {
    "init": "new create setup",
    "check": "validate lint test",
    "plan": "dry-run dryrun preview",
    "submit": "sbatch start launch",
    "runs": "ls list history",
    "status": "queue squeue q ps jobs state sacct info",
    "watch": "follow top",
    "logs": "log tail cat output stdout stderr",
    "debug": "pdb",
    "resume": "rerun retry repair restart requeue continue fix",
    "cancel": "stop kill abort end scancel terminate",
    "clean": "rm remove delete del prune purge gc cleanup",
    "report": "stats seff html why",
    "compare": "diff",
    "doctor": "diagnose",
}
VERB_OF: Mapping[str, str] = {
    word: verb for verb, words in _WORDS.items() for word in words.split()
}
"""The verb that does what a word of another tool means."""


def no_verb_text(word: str, verbs: Mapping[str, str]) -> str:
    """Return the answer to a word that is none of `verbs`, which have their help texts as values.

    A word of another tool gets the verb that does the same, a misspelt one the nearest verb, and
    any other the list of all verbs. A spec instead of a verb is probably to be submitted.
    """
    if word in VERB_OF:
        verb = VERB_OF[word]
        return f"no verb `{word}`: to {verbs[verb]}, type `slurm-jobs {verb}`"
    if word.endswith((".yaml", ".yml")):
        return f"no verb `{word}`: to submit a spec, type `slurm-jobs submit {word}`"
    if word == "version":
        return "no verb `version`: type `slurm-jobs --version`"
    near = difflib.get_close_matches(word, list(verbs), n=1)
    if near:
        return f"no verb `{word}`; did you mean `{near[0]}`, to {verbs[near[0]]}?"
    return f"no verb `{word}` (verbs: {', '.join(verbs)})"
