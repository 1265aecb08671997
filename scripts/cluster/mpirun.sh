#!/usr/bin/env bash
# Starts `plait train` on several hosts with Open MPI's mpirun:
#   RANKS=16 HOSTFILE=hosts scripts/cluster/mpirun.sh CONFIG [--set path=value ...]
#
# RANKS: all of them; HOSTFILE: a line for each host, `node-1 slots=8`, the first of which has rank 0; PORT: where the ranks meet on
# it (29511). The token is made here, and mpirun hands it to every rank.
set -euo pipefail
: "${RANKS:?how many ranks}" "${HOSTFILE:?a file with a line for each host: node-1 slots=8}"
first=$(awk '!/^ *#/ && NF { print $1; exit }' "$HOSTFILE")
PLAIT_TOKEN=$(openssl rand -hex 32)
export PLAIT_TOKEN
exec mpirun -np "$RANKS" --hostfile "$HOSTFILE" --bind-to none -x PLAIT_TOKEN -x PATH \
  plait train "$@" --set "launch.rendezvous=tcp://$first:${PORT:-29511}"
