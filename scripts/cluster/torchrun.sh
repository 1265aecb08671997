#!/usr/bin/env bash
# Starts `plait train` on several hosts with torchrun. Run it on each host, with the same token and its own number:
#   export PLAIT_TOKEN=...                       (openssl rand -hex 32, once, for all hosts)
#   NODES=2 NODE=0 FIRST=node-1 scripts/cluster/torchrun.sh CONFIG [--set path=value ...]
#
# NODES: how many hosts; NODE: this one's number; FIRST: name or address of host 0; RANKS: ranks on each host (default: its GPUs);
# PORT: torchrun's own store (29500). plait meets at the port behind it.
set -euo pipefail
: "${PLAIT_TOKEN:?a secret that all hosts share: openssl rand -hex 32}" "${NODES:?how many hosts}" "${NODE:?0 on FIRST, then 1, 2, ...}" "${FIRST:?host 0}"
port=${PORT:-29500}
exec torchrun --nnodes "$NODES" --node-rank "$NODE" --nproc-per-node "${RANKS:-gpu}" --master-addr "$FIRST" --master-port "$port" \
  --no-python plait train "$@" --set "launch.rendezvous=tcp://:$((port + 1))"
