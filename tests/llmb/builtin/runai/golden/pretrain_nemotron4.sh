#!/bin/bash
#RUNAI POST /workloads/distributed
#RUNAI {
#RUNAI   "name": "pretrain-nemotron4-15b-bf16-gpus64-tp2-k3x9ab2c",
#RUNAI   "useGivenNameAsPrefix": false,
#RUNAI   "spec": {
#RUNAI     "command": "bash",
#RUNAI     "args": "/mnt/pvc/llmb/runs/job_1700000000/launch_pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256",
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
#RUNAI           "path": "/mnt/pvc",
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
#RUNAI     "numWorkers": 7,
#RUNAI     "cleanPodPolicy": "None"
#RUNAI   },
#RUNAI   "masterSpecSameAsWorker": true
#RUNAI }

llmb_run='/mnt/pvc/llmb/runs/job_1700000000'
llmb_work='/mnt/pvc/llmb/runs/job_1700000000/pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256'
llmb_node=${RANK:?the operator of PyTorch jobs sets it}
llmb_batch="$llmb_work"/sbatch_pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256.out
llmb_own="$llmb_work"/log-pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256.out
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
    printf '%s\n' 'pretrain-nemotron4-15b-bf16-gpus64-tp2-k3x9ab2c' "pod $(hostname)" "started $(date +%s)" > "$llmb_run/.scheduler_id" &&
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
  "program": "nemo_pretrain", "schema": 1, "name": "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256", "release": "25.04", "recipe": "nemotron4_15b", "model_recipe": null, "flops_model_name": "nemotron", "nodes": 8, "gpus_per_node": 8,
  "model": {"num_layers": 32, "hidden_size": 6144, "ffn_hidden_size": 24576, "num_attention_heads": 48, "num_query_groups": 8, "seq_length": 4096, "cross_entropy_fusion_impl": "native", "attention_backend": null, "hybrid_override_pattern": null, "moe": null, "mla": null},
  "parallelism": {"tp": 2, "pp": 1, "cp": 1, "vp": null, "ep": 1, "etp": null, "sequence_parallel": true, "embedding_in_pipeline_split": false, "loss_in_pipeline_split": false},
  "micro_batch": 2, "global_batch": 256, "max_steps": 50,
  "precision": {"plugin": "bf16_mixed", "grad_reduce_in_fp32": false},
  "optimizer": {"use_precision_aware_optimizer": null},
  "cuda_graphs": false,
  "comm_overlap": {"overlap_param_gather_with_optimizer_step": false, "userbuffers": null, "wgrad_deferral_limit": null, "tp_comm_bootstrap_backend": "nccl"},
  "tokenizer": {"kind": "null", "vocab_size": 256000},
  "profile": null, "checkpoint": null, "load_checkpoint": null,
  "overrides": {},
  "model_flops": 385000868413440.0
}
' > recipe.json || exit 1
fi

export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export TOKENIZERS_PARALLELISM=False
export NCCL_NVLS_ENABLE=0
export NVTE_FLASH_ATTN=1
export NVTE_FUSED_ATTN=1
export NEMO_LOG_MEMORY_USAGE=1
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
export TRANSFORMERS_OFFLINE=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export DATA=/mnt/pvc/data:/mnt/pvc2
export PYTHONPATH=/mnt/pvc/llmb/.llmb/programs/0${PYTHONPATH:+:$PYTHONPATH}

SECONDS=0
timeout --kill-after=60 1200 \
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
    python3 -m llmb_workloads.nemo_pretrain recipe.json >> "$llmb_own" 2>&1 &
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
if (( SECONDS >= 1200 && llmb_code != 0 )); then
    llmb_code=124
    llmb_say "pod $llmb_node ran longer than the limit of 1200 seconds"
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
