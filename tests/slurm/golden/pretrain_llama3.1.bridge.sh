#!/bin/bash
#SBATCH --job-name=pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01.k3x9ab2c
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:30:00
#SBATCH --chdir=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01
#SBATCH --output=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01/sbatch_pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --account=benchmarks
#SBATCH --partition=batch
#SBATCH --gres=gpu:4
#SBATCH --segment=16

llmb_run='/lustre/llmb/runs/job_1700000000'
llmb_work='/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01'
llmb_log="$llmb_work"/log-pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01.out
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
  "name": "pretrain_llama3.1_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01",
  "release": "26.02.01",
  "libraries": {
    "megatron-bridge": "0.3.1",
    "megatron-core": "0.16.1"
  },
  "base": "megatron.bridge.recipes.llama:llama3_70b_pretrain_config",
  "set": {
    "mixed_precision": {
      "call": "megatron.bridge.training.mixed_precision:bf16_with_fp8_current_scaling_mixed",
      "with": {}
    },
    "mixed_precision.first_last_layers_bf16": false,
    "mixed_precision.grad_reduce_in_fp32": false,
    "ddp.grad_reduce_in_fp32": false,
    "tokenizer.vocab_size": 128256,
    "model.should_pad_vocab": true,
    "model.seq_length": 8192,
    "model.tensor_model_parallel_size": 1,
    "model.pipeline_model_parallel_size": 1,
    "model.context_parallel_size": 1,
    "model.virtual_pipeline_model_parallel_size": null,
    "model.sequence_parallel": false,
    "train.global_batch_size": 256,
    "train.micro_batch_size": 2,
    "model.cpu_offloading": true,
    "model.cpu_offloading_weights": false,
    "model.cpu_offloading_num_layers": 20,
    "ddp.use_megatron_fsdp": true,
    "ddp.data_parallel_sharding_strategy": "optim_grads_params",
    "ddp.keep_fp8_transpose_cache": false,
    "ddp.average_in_collective": false,
    "ddp.fsdp_double_buffer": true,
    "model.init_model_with_meta_device": true,
    "model.gradient_accumulation_fusion": false,
    "ddp.suggested_communication_unit_size": 800000000,
    "train.eval_iters": 0,
    "train.manual_gc": true,
    "train.manual_gc_interval": 100,
    "checkpoint.save": null,
    "logger.log_interval": 1,
    "logger.tensorboard_dir": null,
    "ddp.check_for_nan_in_grad": false,
    "ddp.check_for_large_grads": false,
    "rerun_state_machine.check_for_nan_in_loss": false,
    "scheduler.lr_decay_iters": 50,
    "scheduler.lr_warmup_iters": 10,
    "model.apply_rope_fusion": true,
    "model.cross_entropy_fusion_impl": "te",
    "comm_overlap.tp_comm_overlap_cfg": {
      "name": "megatron.bridge.training.comm_overlap:userbuffers_fp8_b200_h8192_tp2_mbs1_seqlen8192"
    },
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
        "dataloader_type": "single"
      }
    },
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
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    "NVTE_NORM_FWD_USE_CUDNN": "1",
    "NVTE_NORM_BWD_USE_CUDNN": "1"
  },
  "function_environment": false,
  "hub": {},
  "nodes": 16,
  "gpus_per_node": 4
}
' > recipe.json || exit 1

export MASTER_ADDR="$(hostname)"
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export WORLD_SIZE=64
export LOCAL_WORLD_SIZE=4
export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=False
export TRANSFORMERS_OFFLINE=0
export HF_HUB_OFFLINE=0
export TORCH_NCCL_HIGH_PRIORITY=1
export TORCH_NCCL_AVOID_RECORD_STREAMS=1
export NCCL_NVLS_ENABLE=0
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
export CUDA_DEVICE_MAX_CONNECTIONS=32
export NVTE_NORM_FWD_USE_CUDNN=1
export NVTE_NORM_BWD_USE_CUDNN=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'

timeout -k 5 300 srun --overlap --nodes=16 --ntasks=16 --ntasks-per-node=1 \
    bash -c 'llmb_gone() {
    [[ $1 != "$SLURM_JOB_ID" ]] || return 1
    if llmb_answer=$(squeue --noheader --jobs="$1" --format=%T 2>&1); then
        [[ -z $llmb_answer ]] || return 1
    else
        [[ $llmb_answer == *'"'"'Invalid job id'"'"'* ]] || return 1
    fi
    printf '"'"'%s\0'"'"' "$llmb_runs"/*/experiments/*/*/{,attempt-*/}scheduler_id | xargs -0 -r grep -lsx -- "$1" | grep -q .
}
shopt -s nullglob
llmb_runs=$1
while read -r llmb_name; do
    [[ $llmb_name =~ ^pyxis_([0-9]+)(_[0-9]+)?\.[0-9]+$ ]] && llmb_gone "${BASH_REMATCH[1]}" &&
        enroot remove -f "$llmb_name" > /dev/null 2>&1 < /dev/null &&
        echo "llmb: removed the container $llmb_name, which a killed job had left on $SLURMD_NODENAME"
done < <(command -v enroot > /dev/null && enroot list 2> /dev/null)
for llmb_name in "${TMPDIR:-/tmp}"/llmb-* /tmp/llmb-*; do
    [[ ${llmb_name##*/} =~ ^llmb-([0-9]+)\.[0-9]+$ && -O $llmb_name ]] && llmb_gone "${BASH_REMATCH[1]}" &&
        rm -rf -- "$llmb_name"
done
exit 0' _ /lustre/llmb/workloads < /dev/null || true

srun --ntasks=64 --ntasks-per-node=4 --kill-on-bad-exit=1 \
    --mpi=pmix \
    --container-image=/lustre/llmb/images/nvidia+nemo+26.02.01.sqsh \
    --container-mounts='/lustre/llmb/runs/job_1700000000:/lustre/llmb/runs/job_1700000000,/lustre/llmb/.llmb/programs/0:/lustre/llmb/.llmb/programs/0:ro' \
    --container-workdir="$llmb_work" --no-container-mount-home --container-writable \
    --container-env=MASTER_ADDR,MASTER_PORT,WORLD_SIZE,LOCAL_WORLD_SIZE,LLMB_RUN_ID,PYTHONUNBUFFERED,TOKENIZERS_PARALLELISM,TRANSFORMERS_OFFLINE,HF_HUB_OFFLINE,TORCH_NCCL_HIGH_PRIORITY,TORCH_NCCL_AVOID_RECORD_STREAMS,NCCL_NVLS_ENABLE,NVTE_FWD_LAYERNORM_SM_MARGIN,NVTE_BWD_LAYERNORM_SM_MARGIN,CUDA_DEVICE_MAX_CONNECTIONS,NVTE_NORM_FWD_USE_CUDNN,NVTE_NORM_BWD_USE_CUDNN,NCCL_DEBUG,NOTE,HF_TOKEN,SITE_PROXY \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
export LLMB_RANK=$SLURM_PROCID LLMB_NODE_RANK=$SLURM_NODEID LLMB_LOCAL_RANK=$SLURM_LOCALID
read -r llmb_host < /proc/sys/kernel/hostname
if [[ ! ${GLOO_SOCKET_IFNAME-} && $(getent hosts "$llmb_host" 2> /dev/null) == @(127.|::1)* ]]; then
    while read -r llmb_name llmb_to _; do
        if [[ $llmb_to == 00000000 ]]; then export GLOO_SOCKET_IFNAME=$llmb_name; fi
    done < /proc/net/route
fi
export PYTHONPATH=/lustre/llmb/.llmb/programs/0${PYTHONPATH:+:$PYTHONPATH}
for llmb_local in "${TMPDIR:-/tmp}" /tmp '"'"''"'"'; do
    llmb_local=${llmb_local:-$PWD/.local}/llmb-$SLURM_JOB_ID.$SLURM_NODEID
    mkdir -p -m 700 "$llmb_local" 2> /dev/null && [[ -O $llmb_local && -w $llmb_local ]] && break
done
(( LLMB_LOCAL_RANK )) || [[ $llmb_local != "$PWD"/.local/* ]] ||
    echo "llmb: this node has no temporary folder that can be written: caches are in $llmb_local" >&2
for llmb_pair in HOME=home TMPDIR=tmp XDG_CACHE_HOME=cache TRITON_CACHE_DIR=triton TORCHINDUCTOR_CACHE_DIR=inductor HF_HOME=huggingface NEMO_HOME=nemo MPLCONFIGDIR=matplotlib; do
    llmb_name=${llmb_pair%%=*}
    [[ -n ${!llmb_name-} && -d ${!llmb_name} && -w ${!llmb_name} ]] && continue
    mkdir -p "$llmb_local/${llmb_pair#*=}"
    export "$llmb_name=$llmb_local/${llmb_pair#*=}"
done
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
exec "$@"' _ \
    bash -c 'llmb_numa=$((LLMB_LOCAL_RANK / 2))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % 2 )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node $llmb_numa here" >&2
exec "$@"' _ \
    python3 -m llmb_workloads.bridge_pretrain recipe.json >> "$llmb_log" 2>&1
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
for llmb_tmp in "${TMPDIR:-/tmp}" /tmp; do
    [[ ! -d $llmb_tmp/llmb-$SLURM_JOB_ID.0 ]] || timeout -k 5 300 srun --overlap --nodes=16 --ntasks=16 --ntasks-per-node=1 \
        bash -c 'rm -rf -- "$1"/llmb-"$SLURM_JOB_ID".*' _ "$llmb_tmp" < /dev/null
done
exit "$llmb_code"
