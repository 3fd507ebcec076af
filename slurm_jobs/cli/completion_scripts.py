"""The scripts that `slurm-jobs completion` prints, one a shell.

Each asks `slurm-jobs __complete` and hands the answer to the shell's own machinery. Nothing of the
answer is ever evaluated: the first line holds words that are compared (`files`: names of files may
stand there; `nospace`), each other line is a candidate. zsh and fish quote it for the line, and are
given its description behind a tab; for bash it comes quoted, as bash itself leaves a `$(...)` in a
name as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_BASH = r"""# bash completion of slurm-jobs. The line for ~/.bashrc:
#   source <(slurm-jobs completion bash)
_slurm_jobs() {
    local -a program=(@PROGRAM@) lines=()
    local line
    COMPREPLY=()
    [[ -x ${program[0]} ]] || program=(slurm-jobs)
    mapfile -t lines < <("${program[@]}" __complete bash "${COMP_LINE:0:COMP_POINT}" \
        2>/dev/null </dev/null)
    (( ${#lines[@]} )) || return 0
    for line in "${lines[@]:1}"; do
        COMPREPLY+=("$line")
    done
    case " ${lines[0]} " in *" nospace "*) compopt -o nospace ;; esac
    case " ${lines[0]} " in *" files "*) compopt -o default ;; esac
}
complete -o nosort -F _slurm_jobs slurm-jobs 2>/dev/null || complete -F _slurm_jobs slurm-jobs
"""

_ZSH = r"""#compdef slurm-jobs
# zsh completion of slurm-jobs. The line for ~/.zshrc:
#   source <(slurm-jobs completion zsh)
_slurm_jobs() {
    local -a program=(@PROGRAM@) lines whole begun shown_whole shown_begun
    local line value
    [[ -x $program[1] ]] || program=(slurm-jobs)
    lines=("${(@f)$("${program[@]}" __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" \
        2>/dev/null </dev/null)}")
    for line in "${(@)lines[2,-1]}"; do
        value="${line%%$'\t'*}"
        if [[ $value == *[/.=:] ]]; then
            begun+=("$value") shown_begun+=("${line//$'\t'/  -- }")
        else
            whole+=("$value") shown_whole+=("${line//$'\t'/  -- }")
        fi
    done
    (( $#whole )) && compadd -l -V slurm-jobs -d shown_whole -a whole
    (( $#begun )) && compadd -l -V slurm-jobs -S '' -d shown_begun -a begun
    [[ " $lines[1] " == *' files '* ]] && _files
    return 0
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
compdef _slurm_jobs slurm-jobs
"""

_FISH = r"""# fish completion of slurm-jobs. The line for ~/.config/fish/config.fish:
#   slurm-jobs completion fish | source
function __slurm_jobs_complete
    set -l program @PROGRAM@
    test -x $program[1]; or set program slurm-jobs
    set -l words (commandline -opc)
    set -e words[1]
    set -l lines ($program __complete fish $words -- (commandline -ct) 2>/dev/null </dev/null)
    test (count $lines) -gt 0; or return 0
    if string match -q '*files*' -- $lines[1]
        __fish_complete_path (commandline -ct)
    end
    set -e lines[1]
    test (count $lines) -gt 0; and printf '%s\n' $lines
    return 0
end
complete -c slurm-jobs -e
complete -c slurm-jobs -f -k -a '(__slurm_jobs_complete)'
"""


def script(shell: str, program: Sequence[str]) -> str:
    """What the shell is to read; `program` are the words that call slurm-jobs."""
    text = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]
    quote = _fish_quoted if shell == "fish" else shlex.quote
    return text.replace("@PROGRAM@", " ".join(map(quote, program)))


def _fish_quoted(word: str) -> str:
    r"""In fish a backslash and a quote within '...' are written \\ and \'."""
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
