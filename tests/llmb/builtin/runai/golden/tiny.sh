#!/bin/bash
#RUNAI POST /workloads/trainings
#RUNAI {
#RUNAI   "name": "pretrain-llama3-1-tiny-fp32-gpus4-tp1-k3x9ab2c",
#RUNAI   "useGivenNameAsPrefix": false,
#RUNAI   "spec": {
#RUNAI     "command": "bash",
#RUNAI     "args": "/workspace/llmb/runs/job_1700000000/launch_pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16",
#RUNAI     "image": "nvcr.io/nvidia/nemo:25.04.01",
#RUNAI     "imagePullPolicy": "IfNotPresent",
#RUNAI     "restartPolicy": "Never",
#RUNAI     "backoffLimit": 0,
#RUNAI     "terminateAfterPreemption": true,
#RUNAI     "autoDeletionTimeAfterCompletionSeconds": 604800,
#RUNAI     "compute": {
#RUNAI       "gpuDevicesRequest": 4,
#RUNAI       "largeShmRequest": true
#RUNAI     },
#RUNAI     "storage": {
#RUNAI       "pvc": [
#RUNAI         {
#RUNAI           "name": "work",
#RUNAI           "path": "/workspace",
#RUNAI           "existingPvc": true,
#RUNAI           "claimName": "work-claim",
#RUNAI           "readOnly": false
#RUNAI         }
#RUNAI       ]
#RUNAI     },
#RUNAI     "environmentVariables": [
#RUNAI       {
#RUNAI         "name": "SITE_PROXY",
#RUNAI         "value": "<SITE_PROXY>"
#RUNAI       }
#RUNAI     ]
#RUNAI   }
#RUNAI }

llmb_run='/workspace/llmb/runs/job_1700000000'
llmb_work='/workspace/llmb/runs/job_1700000000/pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16'
llmb_job='pretrain-llama3-1-tiny-fp32-gpus4-tp1-k3x9ab2c' llmb_node=0
llmb_batch="$llmb_work"/sbatch_pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
llmb_log="$llmb_work"/log-pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
umask "$(printf %03o $(( ~0$(stat -c %a "$llmb_run") & 077 )))"
mkdir -p "$llmb_work" || exit 1
if ! (set -C; : > "$llmb_run/.started.$llmb_node") 2> /dev/null; then
    if [[ -e $llmb_run/.started.$llmb_node ]]; then
        : > "$llmb_run/restarted"
        echo "node $llmb_node of this run was started before: a run starts once" >&2
    else
        echo "llmb error: $llmb_run cannot be written from this node; check its file system and permissions" >&2
    fi
    exit 1
fi
if (( llmb_node == 0 )); then
    printf '%s\n' "$llmb_job" "host $(hostname)" "started $(date +%s)" > "$llmb_run/.scheduler_id" &&
        mv "$llmb_run/.scheduler_id" "$llmb_run/scheduler_id" || exit 1
fi
trap 'exit 143' TERM INT
tail --pid=$$ -qn +1 -F "$llmb_batch" "$llmb_log" 2> /dev/null &
exec >> "$llmb_batch" 2>&1
cd "$llmb_work" || exit 1
if (( llmb_node == 0 )); then
    printf %s '{
  "program": "torch_pretrain",
  "model": {
    "architecture": "llama",
    "layers": 4,
    "hidden": 192,
    "ffn": 512,
    "heads": 6,
    "kv_groups": 2,
    "vocab": 1024,
    "seq_length": 64,
    "head_dim": null,
    "pattern": null,
    "mamba": null
  },
  "parallelism": {
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "vp": null
  },
  "dtype": "fp32",
  "micro_batch": 2,
  "global_batch": 16,
  "max_steps": 50,
  "learning_rate": 0.001,
  "seed": 1234,
  "model_flops": 717225984.0,
  "checkpoint": null,
  "profile": null
}
' > recipe.json || exit 1
    : > "$llmb_run/.ready"
fi
until [[ -e $llmb_run/.ready ]]; do sleep 0.2; done

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/workspace/data:/mnt/pvc2
export PYTHONPATH=/workspace/llmb/.llmb/programs/0
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1
export MASTER_PORT=26923
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
llmb_here=4 llmb_nodes=1 llmb_limit=1800 llmb_grace=60
llmb_stop() { for llmb_pid in "${llmb_pids[@]}"; do kill "-$1" -- "-$llmb_pid"; done 2> /dev/null; }
llmb_code=0 llmb_stopped=
llmb_end() {
    [[ ! $llmb_stopped ]] || return
    llmb_stopped=$SECONDS llmb_code=$1
    echo "$2"
    echo "$llmb_code" > "$llmb_run/.failed.$llmb_node"
    llmb_stop TERM
}
trap 'llmb_end 143 "stopped by a signal"' TERM INT HUP
llmb_one() {
    export RANK=$(( llmb_node * llmb_here + $1 )) LOCAL_RANK=$1
    export GROUP_RANK=$llmb_node TORCHELASTIC_RUN_ID=$LLMB_RUN_ID  # PyTorch Lightning reads these
    export LLMB_RANK=$RANK LLMB_NODE_RANK=$llmb_node LLMB_LOCAL_RANK=$1
    shift
    exec "$@" >> "$llmb_log" 2>&1
}
SECONDS=0 llmb_pids=()
set -m
for (( llmb_index = 0; llmb_index < 4; llmb_index++ )); do
    llmb_one "$llmb_index" \
        /workspace/venvs/torch/bin/python -m llmb_workloads.torch_pretrain recipe.json &
    llmb_pids+=($!)
done
set +m
llmb_waits() {
    (( llmb_node == 0 )) || return
    for (( llmb_other = 1; llmb_other < llmb_nodes; llmb_other++ )); do
        [[ ! -e $llmb_run/.done.$llmb_other ]] || continue
        [[ $llmb_stopped ]] || return 0
        [[ ! -e $llmb_run/.started.$llmb_other ]] || (( SECONDS - llmb_stopped >= llmb_grace + 5 )) || return 0
    done
    return 1
}
llmb_check_nodes() {
    for llmb_other in "$llmb_run"/.failed.*; do
        [[ ! -s $llmb_other ]] || llmb_end "$(< "$llmb_other")" "node ${llmb_other##*.} has failed"
    done
}
while (( ${#llmb_pids[@]} )) || llmb_waits; do
    for llmb_index in "${!llmb_pids[@]}"; do
        kill -0 "${llmb_pids[llmb_index]}" 2> /dev/null && continue
        wait "${llmb_pids[llmb_index]}"
        llmb_exit=$?
        unset "llmb_pids[llmb_index]"
        (( llmb_exit == 0 )) || llmb_end "$llmb_exit" "rank $llmb_index of node $llmb_node ended with $llmb_exit"
    done
    (( SECONDS < llmb_limit )) || llmb_end 124 "ran longer than its limit of $llmb_limit seconds"
    llmb_check_nodes
    [[ ! $llmb_stopped ]] || (( SECONDS - llmb_stopped < llmb_grace )) || llmb_stop KILL
    sleep 0.2
done
: > "$llmb_run/.done.$llmb_node"
(( llmb_node == 0 )) || exit "$llmb_code"
llmb_check_nodes  # one may have failed and ended since the last look
printf '%s\n' "$llmb_code" "ended $(date +%s)" ${llmb_cause:+"cause $llmb_cause"} > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
exit "$llmb_code"
