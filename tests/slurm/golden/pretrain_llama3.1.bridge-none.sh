#!/bin/bash
#SBATCH --job-name=pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.k3x9ab2c
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:30:00
#SBATCH --chdir=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08
#SBATCH --output=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08/sbatch_pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --account=benchmarks
#SBATCH --partition=batch
#SBATCH --gres=gpu:8

llmb_run='/lustre/llmb/runs/job_1700000000'
llmb_work='/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08'
llmb_log="$llmb_work"/log-pretrain_llama3.1_70b_fp8_cs_gpus64_tp4_pp8_cp1_vp5_mbs1_gbs256_bridge26.08.out
llmb_part=$llmb_run/.scheduler_id.$SLURM_JOB_ID
printf '%s\n' "$SLURM_JOB_ID" "cluster ${SLURM_CLUSTER_NAME-}" "nodes ${SLURM_JOB_NODELIST-}" "host $(hostname)" \
    "started $(date +%s)" > "$llmb_part" || exit 1
[[ -e $llmb_run/scheduler_id ]] || ln "$llmb_part" "$llmb_run/scheduler_id" 2> /dev/null ||
    mv -n "$llmb_part" "$llmb_run/scheduler_id"
rm -f "$llmb_part"
read -r llmb_owner < "$llmb_run/scheduler_id" || exit 1
if [[ $llmb_owner != "$SLURM_JOB_ID" ]]; then
    echo "this run is job $llmb_owner; job $SLURM_JOB_ID is one too many and ends here" >&2
    exit 1
fi

cd "$llmb_work" || exit 1
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

export MASTER_ADDR="$(hostname)"
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export WORLD_SIZE=64
export LOCAL_WORLD_SIZE=8
export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=False
export TRANSFORMERS_OFFLINE=0
export HF_HUB_OFFLINE=0
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export PYTHONPATH=/lustre/llmb/.llmb/programs/0

srun --ntasks=64 --ntasks-per-node=8 --kill-on-bad-exit=1 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
export LLMB_RANK=$SLURM_PROCID LLMB_NODE_RANK=$SLURM_NODEID LLMB_LOCAL_RANK=$SLURM_LOCALID
read -r llmb_host < /proc/sys/kernel/hostname
if [[ ! ${GLOO_SOCKET_IFNAME-} && $(getent hosts "$llmb_host" 2> /dev/null) == @(127.|::1)* ]]; then
    while read -r llmb_name llmb_to _; do
        if [[ $llmb_to == 00000000 ]]; then export GLOO_SOCKET_IFNAME=$llmb_name; fi
    done < /proc/net/route
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
exec "$@"' _ \
    bash -c 'llmb_numa=$((LLMB_LOCAL_RANK / 4))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % 4 )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node $llmb_numa here" >&2
exec "$@"' _ \
    bash -c 'llmb_venv=$1
shift
for llmb_nvidia in "$llmb_venv"/lib/python3*/site-packages/nvidia; do
    llmb_found=
    for llmb_folder in "$llmb_nvidia"/*/lib; do
        [[ ! -d $llmb_folder ]] || llmb_found+=${llmb_found:+:}$llmb_folder
    done
    [[ -n $llmb_found ]] || continue
    export LD_LIBRARY_PATH=$llmb_found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    [[ -n ${CUDA_HOME:-}${CUDA_PATH:-} || -d /usr/local/cuda ]] || export CUDA_HOME=$llmb_nvidia
done
exec "$@"' _ /lustre/llmb/venvs/torch \
    /lustre/llmb/venvs/torch/bin/python -m llmb_workloads.bridge_pretrain recipe.json >> "$llmb_log" 2>&1
llmb_code=$?
if (( llmb_code != 0 )); then
    llmb_first=$(sed -nE '/^srun: error: [^ ]+: tasks? [0-9,-]+: /{s///p;q}' "$llmb_log")
    case $llmb_first in
        'Exited with exit code '*) llmb_code=${llmb_first##* } ;;
        Killed* | 'Out Of Memory'*) llmb_code=137 ;;
        'Segmentation fault'*) llmb_code=139 ;;
        Aborted*) llmb_code=134 ;;
        'Bus error'*) llmb_code=135 ;;
    esac
    llmb_job=$(timeout 10 scontrol --oneliner show job "$SLURM_JOB_ID" 2> /dev/null)
    if [[ $llmb_job == *" PreemptTime="[0-9]* ]]; then llmb_cause=PREEMPTED; fi
fi
printf '%s\n' "$llmb_code" "ended $(date +%s)" ${llmb_cause:+"cause $llmb_cause"} > "$llmb_run/.ended" && mv "$llmb_run/.ended" "$llmb_run/ended"
exit "$llmb_code"
