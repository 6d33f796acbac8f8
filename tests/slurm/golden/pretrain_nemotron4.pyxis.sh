#!/bin/bash
#SBATCH --job-name=pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256.k3x9ab2c
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:20:00
#SBATCH --chdir=/lustre/llmb/runs/job_1700000000/pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256
#SBATCH --output=/lustre/llmb/runs/job_1700000000/pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256/sbatch_pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --account=benchmarks
#SBATCH --partition=batch
#SBATCH --gres=gpu:8

llmb_run='/lustre/llmb/runs/job_1700000000'
llmb_work='/lustre/llmb/runs/job_1700000000/pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256'
llmb_log="$llmb_work"/log-pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256.out
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
  "program": "nemo_pretrain", "schema": 1, "name": "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256", "release": "25.04", "recipe": "nemotron4_15b", "model_recipe": null, "flops_model_name": "nemotron", "nodes": 8, "gpus_per_node": 8,
  "model": {"num_layers": 32, "hidden_size": 6144, "ffn_hidden_size": 24576, "num_attention_heads": 48, "num_query_groups": 8, "seq_length": 4096, "cross_entropy_fusion_impl": "native", "attention_backend": null, "hybrid_override_pattern": null, "moe": null, "mla": null},
  "parallelism": {"tp": 2, "pp": 1, "cp": 1, "vp": null, "ep": 1, "etp": null, "sequence_parallel": true, "embedding_in_pipeline_split": false, "loss_in_pipeline_split": false},
  "micro_batch": 2, "global_batch": 256, "max_steps": 50,
  "precision": {"plugin": "bf16_mixed", "grad_reduce_in_fp32": false},
  "optimizer": {"use_precision_aware_optimizer": null},
  "cuda_graphs": false,
  "comm_overlap": {"overlap_param_gather_with_optimizer_step": false, "userbuffers": null, "wgrad_deferral_limit": null, "tp_comm_bootstrap_backend": null},
  "tokenizer": {"kind": "null", "vocab_size": 256000},
  "profile": null, "checkpoint": null, "load_checkpoint": null,
  "overrides": {},
  "model_flops": 385000868413440.0
}
' > recipe.json || exit 1

export MASTER_ADDR="$(hostname)"
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export WORLD_SIZE=64
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
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'

llmb_boost=$(timeout -k 5 60 srun --overlap --nodes=8 --ntasks=8 --ntasks-per-node=1 \
    bash -c 'llmb_output=$(sudo -n nvidia-smi boost-slider --vboost 1 2>&1) && echo "llmb: set" ||
    echo "llmb: $SLURMD_NODENAME: ${llmb_output##*$'"'"'\n'"'"'}"' 2>&1 < /dev/null)
llmb_code=$?
llmb_set=$(grep -c '^llmb: set$' <<< "$llmb_boost")
llmb_why=$(grep -v '^llmb: set$' <<< "$llmb_boost" | sed -n 's/^llmb: //p' | head -n 1)
if (( llmb_code == 124 || llmb_code == 137 )); then
    llmb_why="no answer within 60 s"
    scancel "$SLURM_JOB_ID.0" 2> /dev/null
fi
if (( llmb_set < 8 )); then
    llmb_why=": ${llmb_why:-${llmb_boost##*$'\n'}}"
else
    llmb_why=
fi
echo "llmb vboost {set on $llmb_set of 8 nodes}$llmb_why" >> "$llmb_log"

timeout -k 5 300 srun --overlap --nodes=8 --ntasks=8 --ntasks-per-node=1 \
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

srun --ntasks=64 --ntasks-per-node=8 --kill-on-bad-exit=1 \
    --mpi=pmix \
    --container-image=/lustre/llmb/images/nvidia+nemo+25.04.01.sqsh \
    --container-mounts='/lustre/llmb/runs/job_1700000000:/lustre/llmb/runs/job_1700000000,/lustre/llmb/.llmb/programs/0:/lustre/llmb/.llmb/programs/0:ro' \
    --container-workdir="$llmb_work" --no-container-mount-home \
    --container-env=MASTER_ADDR,MASTER_PORT,WORLD_SIZE,LOCAL_WORLD_SIZE,LLMB_RUN_ID,PYTHONUNBUFFERED,TORCH_NCCL_AVOID_RECORD_STREAMS,TOKENIZERS_PARALLELISM,NCCL_NVLS_ENABLE,NVTE_FLASH_ATTN,NVTE_FUSED_ATTN,NEMO_LOG_MEMORY_USAGE,NVTE_FWD_LAYERNORM_SM_MARGIN,NVTE_BWD_LAYERNORM_SM_MARGIN,TRANSFORMERS_OFFLINE,CUDA_DEVICE_MAX_CONNECTIONS,NCCL_DEBUG,NOTE,SITE_PROXY \
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
    bash -c 'llmb_numa=$((LLMB_LOCAL_RANK / 4))
if numactl --cpunodebind=$llmb_numa --membind=$llmb_numa true 2> /dev/null; then
    exec numactl --cpunodebind=$llmb_numa --membind=$llmb_numa "$@"
fi
(( LLMB_LOCAL_RANK % 4 )) ||
    echo "llmb: the ranks from $LLMB_RANK on are not bound: numactl cannot bind to NUMA node $llmb_numa here" >&2
exec "$@"' _ \
    python3 -m llmb_workloads.nemo_pretrain recipe.json >> "$llmb_log" 2>&1
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
    [[ ! -d $llmb_tmp/llmb-$SLURM_JOB_ID.0 ]] || timeout -k 5 300 srun --overlap --nodes=8 --ntasks=8 --ntasks-per-node=1 \
        bash -c 'rm -rf -- "$1"/llmb-"$SLURM_JOB_ID".*' _ "$llmb_tmp" < /dev/null
done
exit "$llmb_code"
