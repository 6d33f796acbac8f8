#!/bin/bash
#SBATCH --job-name=pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256.k3x9ab2c
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:30:00
#SBATCH --chdir=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256
#SBATCH --output=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256/sbatch_pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --account=benchmarks
#SBATCH --partition=batch
#SBATCH --gres=gpu:8

llmb_run='/lustre/llmb/runs/job_1700000000'
llmb_work='/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256'
llmb_log="$llmb_work"/log-pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256.out
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
  "program": "nemo_pretrain", "schema": 1, "name": "pretrain_llama3.1_405b_fp8_gpus512_tp8_pp8_cp2_vp8_mbs1_gbs256", "release": "25.05", "recipe": "llama31_405b", "model_recipe": null, "flops_model_name": "llama3", "nodes": 64, "gpus_per_node": 8,
  "model": {"num_layers": 126, "hidden_size": 16384, "ffn_hidden_size": 53248, "num_attention_heads": 128, "num_query_groups": 8, "seq_length": 8192, "cross_entropy_fusion_impl": "te", "attention_backend": null, "hybrid_override_pattern": null, "moe": null, "mla": null},
  "parallelism": {"tp": 8, "pp": 8, "cp": 2, "vp": 8, "ep": 1, "etp": null, "sequence_parallel": true, "embedding_in_pipeline_split": true, "loss_in_pipeline_split": true},
  "micro_batch": 1, "global_batch": 256, "max_steps": 50,
  "precision": {"plugin": "bf16_with_fp8_mixed", "grad_reduce_in_fp32": false},
  "optimizer": {"use_precision_aware_optimizer": null},
  "cuda_graphs": false,
  "comm_overlap": {"overlap_param_gather_with_optimizer_step": true, "userbuffers": "userbuffers_fp8_h100_h16384_tp8_cp2_mbs1_seqlen8192", "wgrad_deferral_limit": 50, "tp_comm_bootstrap_backend": "nccl"},
  "tokenizer": {"kind": "null", "vocab_size": 128255},
  "profile": null, "checkpoint": null, "load_checkpoint": null,
  "overrides": {},
  "model_flops": 2.15074782314496e+16
}
' > recipe.json || exit 1

export MASTER_ADDR="$(hostname)"
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export WORLD_SIZE=512
export LOCAL_WORLD_SIZE=8
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
export NCCL_P2P_NET_CHUNKSIZE=2097152
export NVTE_NORM_FWD_USE_CUDNN=1
export NVTE_NORM_BWD_USE_CUDNN=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export PYTHONPATH=/lustre/llmb/.llmb/programs/0

llmb_boost=$(timeout -k 5 60 srun --overlap --nodes=64 --ntasks=64 --ntasks-per-node=1 \
    bash -c 'llmb_output=$(sudo -n nvidia-smi boost-slider --vboost 1 2>&1) && echo "llmb: set" ||
    echo "llmb: $SLURMD_NODENAME: ${llmb_output##*$'"'"'\n'"'"'}"' 2>&1 < /dev/null)
llmb_code=$?
llmb_set=$(grep -c '^llmb: set$' <<< "$llmb_boost")
llmb_why=$(grep -v '^llmb: set$' <<< "$llmb_boost" | sed -n 's/^llmb: //p' | head -n 1)
if (( llmb_code == 124 || llmb_code == 137 )); then
    llmb_why="no answer within 60 s"
    scancel "$SLURM_JOB_ID.0" 2> /dev/null
fi
if (( llmb_set < 64 )); then
    llmb_why=": ${llmb_why:-${llmb_boost##*$'\n'}}"
else
    llmb_why=
fi
echo "llmb vboost {set on $llmb_set of 64 nodes}$llmb_why" >> "$llmb_log"

srun --ntasks=512 --ntasks-per-node=8 --kill-on-bad-exit=1 \
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
    /lustre/llmb/venvs/torch/bin/python -m llmb_workloads.nemo_pretrain recipe.json >> "$llmb_log" 2>&1
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
