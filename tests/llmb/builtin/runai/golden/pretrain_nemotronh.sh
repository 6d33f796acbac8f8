#!/bin/bash
#RUNAI POST /workloads/distributed
#RUNAI {
#RUNAI   "name": "pretrain-nemotronh-56b-fp8-gpus32-tp8-k3x9ab2c",
#RUNAI   "useGivenNameAsPrefix": false,
#RUNAI   "spec": {
#RUNAI     "command": "bash",
#RUNAI     "args": "/workspace/llmb/runs/job_1700000000/launch_pretrain_nemotronh_56b_fp8_gpus32_tp8_pp1_cp1_vpNone_mbs1_gbs96",
#RUNAI     "image": "nvcr.io/nvidia/nemo:25.04.01",
#RUNAI     "imagePullPolicy": "IfNotPresent",
#RUNAI     "restartPolicy": "Never",
#RUNAI     "backoffLimit": 0,
#RUNAI     "terminateAfterPreemption": true,
#RUNAI     "autoDeletionTimeAfterCompletionSeconds": 604800,
#RUNAI     "compute": {
#RUNAI       "gpuDevicesRequest": 8,
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
#RUNAI     ],
#RUNAI     "distributedFramework": "PyTorch",
#RUNAI     "numWorkers": 3,
#RUNAI     "cleanPodPolicy": "None"
#RUNAI   },
#RUNAI   "masterSpecSameAsWorker": true
#RUNAI }

llmb_run='/workspace/llmb/runs/job_1700000000'
llmb_work='/workspace/llmb/runs/job_1700000000/pretrain_nemotronh_56b_fp8_gpus32_tp8_pp1_cp1_vpNone_mbs1_gbs96'
llmb_job='pretrain-nemotronh-56b-fp8-gpus32-tp8-k3x9ab2c' llmb_node="${RANK:?the operator of PyTorch jobs sets it}"
llmb_batch="$llmb_work"/sbatch_pretrain_nemotronh_56b_fp8_gpus32_tp8_pp1_cp1_vpNone_mbs1_gbs96.out
llmb_log="$llmb_work"/log-pretrain_nemotronh_56b_fp8_gpus32_tp8_pp1_cp1_vpNone_mbs1_gbs96.out
(( llmb_node == 0 )) || llmb_log="$llmb_work/pod-$llmb_node.out"
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
llmb_count="${WORLD_SIZE-no}"
if [[ $llmb_count != 4 ]]; then
    echo "llmb error: the scheduler has started $llmb_count nodes, and this run has 4; see its events"
    echo 1 > "$llmb_run/.failed.$llmb_node"
    (( llmb_node == 0 )) || exit 1
    llmb_code=1
    printf '%s\n' "$llmb_code" "ended $(date +%s)" ${llmb_cause:+"cause $llmb_cause"} > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
    exit "$llmb_code"
fi
if (( llmb_node == 0 )); then
    printf %s '{
  "program": "nemo_pretrain", "schema": 1, "name": "pretrain_nemotronh_56b_fp8_gpus32_tp8_pp1_cp1_vpNone_mbs1_gbs96", "release": "25.05", "recipe": "nemotronh_56b", "model_recipe": null, "flops_model_name": "nemotronh", "nodes": 4, "gpus_per_node": 8,
  "model": {"num_layers": 118, "hidden_size": 8192, "ffn_hidden_size": 32768, "num_attention_heads": 64, "num_query_groups": 8, "seq_length": 8192, "cross_entropy_fusion_impl": "te", "attention_backend": "flash", "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "moe": null, "mla": null},
  "parallelism": {"tp": 8, "pp": 1, "cp": 1, "vp": null, "ep": 1, "etp": null, "sequence_parallel": true, "embedding_in_pipeline_split": false, "loss_in_pipeline_split": false},
  "micro_batch": 1, "global_batch": 96, "max_steps": 50,
  "precision": {"plugin": "bf16_with_fp8_mixed", "grad_reduce_in_fp32": false},
  "optimizer": {"use_precision_aware_optimizer": null},
  "cuda_graphs": false,
  "comm_overlap": {"overlap_param_gather_with_optimizer_step": false, "userbuffers": null, "wgrad_deferral_limit": null, "tp_comm_bootstrap_backend": "nccl"},
  "tokenizer": {"kind": "null", "vocab_size": 131072},
  "profile": null, "checkpoint": null, "load_checkpoint": null,
  "overrides": {},
  "model_flops": 2816072617033728.0
}
' > recipe.json || exit 1
    : > "$llmb_run/.ready"
fi
until [[ -e $llmb_run/.ready ]]; do sleep 0.2; done

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export TOKENIZERS_PARALLELISM=False
export NCCL_NVLS_ENABLE=0
export NVTE_FLASH_ATTN=1
export NVTE_FUSED_ATTN=0
export NEMO_LOG_MEMORY_USAGE=1
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
export TRANSFORMERS_OFFLINE=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/workspace/data:/mnt/pvc2
export PYTHONPATH=/workspace/llmb/.llmb/programs/0${PYTHONPATH:+:$PYTHONPATH}
export WORLD_SIZE=32 LOCAL_WORLD_SIZE=8 MASTER_ADDR="$MASTER_ADDR"
export MASTER_PORT="$MASTER_PORT"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
llmb_here=8 llmb_nodes=4 llmb_limit=1500 llmb_grace=60
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
for (( llmb_index = 0; llmb_index < 8; llmb_index++ )); do
    llmb_one "$llmb_index" \
        bash -c 'llmb_numa=$((LLMB_LOCAL_RANK / 4))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % 4 )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node $llmb_numa here" >&2
exec "$@"' _ \
        python3 -m llmb_workloads.nemo_pretrain recipe.json &
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
