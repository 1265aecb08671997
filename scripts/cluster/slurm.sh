#!/usr/bin/env bash
#SBATCH --job-name=plait
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@120
#SBATCH --output=%x-%j.out
# Trains on the nodes of a Slurm job, a task for each rank:
#   sbatch [--nodes=N ...] scripts/cluster/slurm.sh CONFIG [--set path=value ...]
# What sbatch is given on its command line wins over the lines above. 120 s before the time is up Slurm sends USR1, plait saves a
# checkpoint and ends with status 75, and the job says so: submit it again with `--resume RUN_DIR`.
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PLAIT_TOKEN=$(openssl rand -hex 32)
export PLAIT_TOKEN  # srun hands it to every task
status=0
srun --kill-on-bad-exit=0 plait train "$@" --set "launch.rendezvous=tcp://$first:$((20000 + SLURM_JOB_ID % 10000))" || status=$?
if [ "$status" -eq 75 ]; then echo "stopped with a checkpoint; go on with --resume (the run directory is named above)"; fi
exit "$status"
