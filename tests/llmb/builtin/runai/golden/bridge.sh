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
llmb_node=${RANK:?the operator of PyTorch jobs sets it}
llmb_batch="$llmb_work"/sbatch_pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
llmb_own="$llmb_work"/log-pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
(( llmb_node == 0 )) || llmb_own="$llmb_work/pod-$llmb_node.out"
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
    printf '%s\n' 'pretrain-llama3-1-70b-fp8-cs-gpus64-tp-k3x9ab2c' "pod $(hostname)" "started $(date +%s)" > "$llmb_run/.scheduler_id" &&
        mv "$llmb_run/.scheduler_id" "$llmb_run/scheduler_id" || exit 1
fi

if [[ ${WORLD_SIZE-} != 8 ]]; then
    llmb_say "llmb error: Run:ai has started ${WORLD_SIZE-no} pods, and this run has 8; see its events"
    echo 1 > "$llmb_run/.failed.$llmb_node"
    (( llmb_node == 0 )) || exit 1
    llmb_code=1
    printf '%s\n' "$llmb_code" "ended $(date +%s)" > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
    exit "$llmb_code"
fi

cd "$llmb_work" || exit 1
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
fi

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=False
export TRANSFORMERS_OFFLINE=0
export HF_HUB_OFFLINE=0
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/mnt/pvc/data:/mnt/pvc2
export PYTHONPATH=/mnt/pvc/llmb/.llmb/programs/0${PYTHONPATH:+:$PYTHONPATH}

SECONDS=0
timeout --kill-after=60 1800 \
    python3 -m torch.distributed.run --nnodes=8 --node_rank="$llmb_node" --nproc_per_node=8 \
    --max_restarts=0 --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" --no-python \
    bash -c 'export LLMB_RANK=$RANK LLMB_NODE_RANK=$GROUP_RANK LLMB_LOCAL_RANK=$LOCAL_RANK
exec "$@"' _ \
    bash -c 'llmb_numa=$((LLMB_LOCAL_RANK / 4))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % 4 )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node $llmb_numa here" >&2
exec "$@"' _ \
    python3 -m llmb_workloads.bridge_pretrain recipe.json >> "$llmb_own" 2>&1 &
llmb_main=$!
trap 'kill "$llmb_main" 2> /dev/null' TERM INT
tail --pid="$llmb_main" -n +1 -F "$llmb_own" 2> /dev/null &
(
    while sleep 2; do
        for llmb_other in "$llmb_run"/.failed.*; do
            [[ -s $llmb_other ]] || continue
            echo "pod ${llmb_other##*.} has failed: this one ends" >> "$llmb_own"
            kill "$llmb_main"
            exit
        done
    done
) &
llmb_watch=$!
while :; do
    wait "$llmb_main"
    llmb_code=$?
    kill -0 "$llmb_main" 2> /dev/null || break
done
kill "$llmb_watch" 2> /dev/null
if (( SECONDS >= 1800 && llmb_code != 0 )); then
    llmb_code=124
    llmb_say "pod $llmb_node ran longer than the limit of 1800 seconds"
elif (( llmb_code != 0 )); then
    llmb_first=$(sed -nE '/^Root Cause/,$s/^ *exitcode *: *(-?[0-9]+).*/\1/p' "$llmb_own" | head -n 1)
    (( ${llmb_first:=$llmb_code} < 0 )) && llmb_first=$(( 128 - llmb_first ))
    llmb_code=$llmb_first
fi
if (( llmb_code != 0 )); then
    for llmb_other in "$llmb_run"/.failed.*; do
        [[ ! -s $llmb_other ]] || read -r llmb_code < "$llmb_other"
    done
    echo "$llmb_code" > "$llmb_run/.failed.$llmb_node"
fi
(( llmb_node == 0 )) || exit "$llmb_code"
printf '%s\n' "$llmb_code" "ended $(date +%s)" > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
exit "$llmb_code"
