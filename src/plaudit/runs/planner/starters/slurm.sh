#!/bin/bash
# {{purpose}}
# Start it with: sbatch {{file}}
# A job that is requeued goes on from its last checkpoint. It is requeued by Slurm when a machine is lost, and by
# itself when a process was killed or its time ran out; a fault that would come again ends it.
#SBATCH --job-name={{name}}
#SBATCH --chdir={{here}}
#SBATCH --output={{logs}}{{name}}-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --time=24:00:00
# Five minutes before the time is out all processes are told: the run saves, and goes on in the next job.
#SBATCH --signal=TERM@300
{{#together}}
# On each machine {{trainers_a_node}} that learn and {{servers_a_node}} that draw.
#SBATCH --nodes={{trainer_nodes}}
#SBATCH --ntasks-per-node={{a_node}}
{{#gpus}}
#SBATCH --gpus-per-node={{a_node}}
{{/gpus}}
{{/together}}
{{#apart}}
# The machines that learn.
#SBATCH --nodes={{trainer_nodes}}
#SBATCH --ntasks-per-node={{trainers_a_node}}
{{#gpus}}
#SBATCH --gpus-per-node={{trainers_a_node}}
{{/gpus}}
{{#servers}}
# And those that draw.
#SBATCH hetjob
#SBATCH --nodes={{server_nodes}}
#SBATCH --ntasks-per-node={{servers_a_node}}
{{#gpus}}
#SBATCH --gpus-per-node={{servers_a_node}}
{{/gpus}}
{{/servers}}
{{/apart}}

set -u
said=$(mktemp)
{{#servers}}

# Servers end with the job; one that ends before is started again, and asked once it has proven its weights.
export PLAUDIT_SERVER_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export FIRST_PORT=$((10000 + (16 * SLURM_JOB_ID + 160 * ${SLURM_RESTART_COUNT:-0}) % 20000))
serve() {
  port=$((FIRST_PORT + SLURM_LOCALID))
  trap 'kill "$server"; exit' TERM
{{#gpus}}
  export CUDA_VISIBLE_DEVICES=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d, -f$((SLURM_LOCALID + 1)))
  export VLLM_SERVER_DEV_MODE=1 VLLM_API_KEY="$PLAUDIT_SERVER_TOKEN"
{{/gpus}}
  while sleep 1; do
    {{serve}} --host "$SLURMD_NODENAME" --port "$port" &
    server=$!
    wait "$server"
  done
}
export -f serve
srun --label{{server_step}} bash -c serve > "{{logs}}{{name}}-$SLURM_JOB_ID-servers.log" 2>&1 &
urls=
for host in $(scontrol show hostnames "${{node_list}}"); do
  for place in {{server_places}}; do
    urls+=${urls:+,}http://$host:$((FIRST_PORT + place))
  done
done
# Until each of them listens, for as long as a model takes to load.
for url in ${urls//,/ }; do
  for _ in $(seq 600); do
    curl --silent --fail --output /dev/null --header "Authorization: Bearer $PLAUDIT_SERVER_TOKEN" "$url/health" && break
    sleep 1
  done
done
{{/servers}}

srun --kill-on-bad-exit=1{{trainer_step}} {{train}} \
{{#servers}}
  --sampler "$urls" --server.token-from PLAUDIT_SERVER_TOKEN --server.folder {{folder}} \
{{/servers}}
  2> >(tee "$said" >&2)
status=$?

# What went wrong, as the last line of the log, behind what srun says of each process.
fault=$(grep '^plaudit: ' "$said" | grep -v -e 'stopped, because rank' -e 'ended without a word' -e SIGTERM | tail -n 1)
if [ -z "$fault" ] && grep -q 'Exited with exit code 1$' "$said"; then
  fault=$(grep 'Error: ' "$said" | tail -n 1)
  fault="plaudit: an error of the program, whose traceback stands above: ${fault:-it says nothing}"
fi
[ -z "$fault" ] || echo "$fault" >&2
# 128 and a signal: killed, or told to stop. What is no fault of the run is worth another try.
if [ -z "$fault" ] && [ "$status" -ge 128 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ]; then
  scontrol requeue "${SLURM_HET_JOB_ID:-$SLURM_JOB_ID}"
fi
exit "$status"
