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
llmb_node=0
llmb_batch="$llmb_work"/sbatch_pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
llmb_own="$llmb_work"/log-pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
umask "$(printf %03o $(( ~0$(stat -c %a "$llmb_run") & 077 )))"
llmb_say() { echo "$1" | tee -a "$llmb_batch" >&2; }
if ! (set -C; : > "$llmb_run/.started.$llmb_node") 2> /dev/null; then
    if [[ -e $llmb_run/.started.$llmb_node ]]; then
        : > "$llmb_run/restarted"
        llmb_say "pod $llmb_node was started before: a run starts once"
    else
        echo "llmb error: $llmb_run cannot be written from this pod; check the PVC and its permissions" >&2
    fi
    exit 1
fi
if (( llmb_node == 0 )); then
    printf '%s\n' 'pretrain-llama3-1-tiny-fp32-gpus4-tp1-k3x9ab2c' "pod $(hostname)" "started $(date +%s)" > "$llmb_run/.scheduler_id" &&
        mv "$llmb_run/.scheduler_id" "$llmb_run/scheduler_id" || exit 1
fi

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
fi

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/workspace/data:/mnt/pvc2
export PYTHONPATH=/workspace/llmb/.llmb/programs/0

SECONDS=0
timeout --kill-after=60 1800 \
    /workspace/venvs/torch/bin/python -m torch.distributed.run --standalone --nnodes=1 --nproc_per_node=4 \
    --max_restarts=0 --no-python \
    bash -c 'export LLMB_RANK=$RANK LLMB_NODE_RANK=$GROUP_RANK LLMB_LOCAL_RANK=$LOCAL_RANK
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
exec "$@"' _ \
    /workspace/venvs/torch/bin/python -m llmb_workloads.torch_pretrain recipe.json >> "$llmb_own" 2>&1 &
llmb_main=$!
trap 'kill "$llmb_main" 2> /dev/null' TERM INT
tail --pid="$llmb_main" -n +1 -F "$llmb_own" 2> /dev/null &
while :; do
    wait "$llmb_main"
    llmb_code=$?
    kill -0 "$llmb_main" 2> /dev/null || break
done
if (( SECONDS >= 1800 && llmb_code != 0 )); then
    llmb_code=124
    llmb_say "pod $llmb_node ran longer than the limit of 1800 seconds"
elif (( llmb_code != 0 )); then
    llmb_first=$(sed -nE '/^Root Cause/,$s/^ *exitcode *: *(-?[0-9]+).*/\1/p' "$llmb_own" | head -n 1)
    (( ${llmb_first:=$llmb_code} < 0 )) && llmb_first=$(( 128 - llmb_first ))
    llmb_code=$llmb_first
fi
printf '%s\n' "$llmb_code" "ended $(date +%s)" > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
exit "$llmb_code"
