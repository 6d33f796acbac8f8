#!/bin/bash
#RUNAI POST /workloads/distributed
#RUNAI {
#RUNAI   "name": "pretrain-llama3-1-70b-fp8-cs-gpus64-tp-k3x9ab2c",
#RUNAI   "useGivenNameAsPrefix": false,
#RUNAI   "spec": {
#RUNAI     "command": "bash",
#RUNAI     "args": "/mnt/pvc/llmb/runs/job_1700000000/launch_pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08",
#RUNAI     "image": "nvcr.io/nvidia/nemo:26.08",
#RUNAI     "imagePullPolicy": "IfNotPresent",
#RUNAI     "restartPolicy": "Never",
#RUNAI     "backoffLimit": 0,
#RUNAI     "terminateAfterPreemption": true,
#RUNAI     "autoDeletionTimeAfterCompletionSeconds": 172800,
#RUNAI     "compute": {
#RUNAI       "gpuDevicesRequest": 8,
#RUNAI       "largeShmRequest": true,
#RUNAI       "extendedResources": [
#RUNAI         {
#RUNAI           "resource": "rdma/ib",
#RUNAI           "quantity": "8"
#RUNAI         }
#RUNAI       ],
#RUNAI       "cpuMemoryRequest": "1T"
#RUNAI     },
#RUNAI     "storage": {
#RUNAI       "pvc": [
#RUNAI         {
#RUNAI           "name": "work",
#RUNAI           "path": "/mnt/pvc",
#RUNAI           "existingPvc": true,
#RUNAI           "claimName": "work-claim",
#RUNAI           "readOnly": false
#RUNAI         }
#RUNAI       ]
#RUNAI     },
#RUNAI     "environmentVariables": [
#RUNAI       {
#RUNAI         "name": "HF_TOKEN",
#RUNAI         "secret": {
#RUNAI           "name": "hub",
#RUNAI           "key": "token"
#RUNAI         }
#RUNAI       },
#RUNAI       {
#RUNAI         "name": "SITE_PROXY",
#RUNAI         "value": "<SITE_PROXY>"
#RUNAI       }
#RUNAI     ],
#RUNAI     "nodePools": [
#RUNAI       "h100",
#RUNAI       "spare"
#RUNAI     ],
#RUNAI     "annotations": [
#RUNAI       {
#RUNAI         "name": "k8s.v1.cni.cncf.io/networks",
#RUNAI         "value": "ib0,ib1"
#RUNAI       }
#RUNAI     ],
#RUNAI     "distributedFramework": "PyTorch",
#RUNAI     "numWorkers": 7,
#RUNAI     "cleanPodPolicy": "None",
#RUNAI     "priorityClass": "high"
#RUNAI   },
#RUNAI   "masterSpecSameAsWorker": true
#RUNAI }

llmb_run='/mnt/pvc/llmb/runs/job_1700000000'
llmb_work='/mnt/pvc/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08'
llmb_job='pretrain-llama3-1-70b-fp8-cs-gpus64-tp-k3x9ab2c' llmb_node="${RANK:?the operator of PyTorch jobs sets it}"
llmb_batch="$llmb_work"/sbatch_pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
llmb_log="$llmb_work"/log-pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
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
if [[ $llmb_count != 8 ]]; then
    echo "llmb error: the scheduler has started $llmb_count nodes, and this run has 8; see its events"
    echo 1 > "$llmb_run/.failed.$llmb_node"
    (( llmb_node == 0 )) || exit 1
    llmb_code=1
    printf '%s\n' "$llmb_code" "ended $(date +%s)" ${llmb_cause:+"cause $llmb_cause"} > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
    exit "$llmb_code"
fi
if (( llmb_node == 0 )); then
    printf %s '{
  "program": "bridge_pretrain",
  "schema": 1,
  "name": "pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08",
  "release": "26.08",
  "libraries": {
    "megatron-bridge": "0.6.0",
    "megatron-core": "0.19.0"
  },
  "base": "megatron.bridge.perf_recipes.llama.h100.llama3:llama3_70b_pretrain_64gpu_h100_fp8cs_config",
  "set": {
    "model.tensor_model_parallel_size": 4,
    "model.pipeline_model_parallel_size": 8,
    "model.context_parallel_size": 1,
    "model.virtual_pipeline_model_parallel_size": 5,
    "model.sequence_parallel": true,
    "train.global_batch_size": 256,
    "train.micro_batch_size": 1,
    "dataset": {
      "call": "megatron.bridge.training.config:MockGPTDatasetConfig",
      "with": {
        "seq_length": 8192,
        "random_seed": 1234,
        "split": "99990,8,2",
        "num_workers": 8,
        "reset_attention_mask": false,
        "reset_position_ids": false,
        "eod_mask_loss": false,
        "num_dataset_builder_threads": 1,
        "data_sharding": true,
        "dataloader_type": "single",
        "pin_memory": true,
        "persistent_workers": true
      }
    },
    "model.cuda_graph_scope": null,
    "model.cuda_graph_modules": [],
    "train.train_iters": 50,
    "logger.save_config_filepath": "ConfigContainer.yaml",
    "checkpoint.load": null
  },
  "overrides": {},
  "environment": {
    "TOKENIZERS_PARALLELISM": "False",
    "TRANSFORMERS_OFFLINE": "0",
    "HF_HUB_OFFLINE": "0",
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "20",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "20",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "NCCL_GRAPH_REGISTER": "0",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "NCCL_P2P_NET_CHUNKSIZE": "2097152"
  },
  "function_environment": false,
  "hub": {},
  "nodes": 8,
  "gpus_per_node": 8
}
' > recipe.json || exit 1
    : > "$llmb_run/.ready"
fi
until [[ -e $llmb_run/.ready ]]; do sleep 0.2; done

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=False
export TRANSFORMERS_OFFLINE=0
export HF_HUB_OFFLINE=0
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/mnt/pvc/data:/mnt/pvc2
export PYTHONPATH=/mnt/pvc/llmb/.llmb/programs/0${PYTHONPATH:+:$PYTHONPATH}
export WORLD_SIZE=64 LOCAL_WORLD_SIZE=8 MASTER_ADDR="$MASTER_ADDR"
export MASTER_PORT="$MASTER_PORT"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
llmb_here=8 llmb_nodes=8 llmb_limit=1800 llmb_grace=60
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
        python3 -m llmb_workloads.bridge_pretrain recipe.json &
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
