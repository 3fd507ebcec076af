#!/bin/bash

# Parameters
#SBATCH --account=vision
#SBATCH --chdir=/shared/project
#SBATCH --cpus-per-task=1
#SBATCH --dependency=afterany:TRAIN_ID,afternotok:TOKENS_ID
#SBATCH --exclusive
#SBATCH --gpus-per-node=a100:1
#SBATCH --job-name=shapes.judge.TOKEN
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/project/runs/shapes-RUN/logs/judge/slurm-%j.log
#SBATCH --partition=gpu
#SBATCH --qos=long
#SBATCH --requeue
#SBATCH --signal=B:USR2@120
#SBATCH --time=60:00

# setup
trap '' USR2
umask 077
set -eo pipefail
export NCCL_DEBUG=WARN
export GREETING='it'"'"'s "$HOME" `x`'
exec {_log}>&2
trap '
  _code=$? _at=${BASH_LINENO[@]: -2:1}
  _code=${_code#0} _at=${_at:-$_failed}
  printf "%s\n" "the job ended in set-up${_at:+ line $((_at - _before))}${_code:+, exit code $_code}: $BASH_COMMAND" >&$_log
' EXIT
trap '_failed=$LINENO' ERR
_failed= _before=$LINENO
module load cuda/12.6

trap - ERR EXIT
exec {_log}>&-
set +eo pipefail

# command
export SUBMITIT_EXECUTOR=slurm
exec /shared/env/bin/python /shared/project/runs/shapes-RUN/code/CODE/start.py task /shared/project/runs/shapes-RUN TOKEN
