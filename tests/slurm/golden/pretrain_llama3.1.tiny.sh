#!/bin/bash
#SBATCH --job-name=pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.k3x9ab2c
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:30:00
#SBATCH --chdir=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16
#SBATCH --output=/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16/sbatch_pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
#SBATCH --open-mode=append
#SBATCH --export=ALL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --account=benchmarks
#SBATCH --partition=batch
#SBATCH --gres=gpu:8

llmb_run='/lustre/llmb/runs/job_1700000000'
llmb_work='/lustre/llmb/runs/job_1700000000/pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16'
llmb_log="$llmb_work"/log-pretrain_llama3.1_tiny_fp32_gpus4_tp1_pp1_cp1_vpNone_mbs2_gbs16.out
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

export MASTER_ADDR="$(hostname)"
export MASTER_PORT=$(( 20000 + SLURM_JOB_ID % 10000 ))
export WORLD_SIZE=4
export LOCAL_WORLD_SIZE=4
export LLMB_RUN_ID='k3x9ab2c'
export PYTHONUNBUFFERED=1
export NCCL_DEBUG=WARN
export NOTE='it'"'"'s 5 o'"'"'clock'
export PYTHONPATH=/lustre/llmb/.llmb/programs/0

srun --ntasks=4 --ntasks-per-node=4 --kill-on-bad-exit=1 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
export LLMB_RANK=$SLURM_PROCID LLMB_NODE_RANK=$SLURM_NODEID LLMB_LOCAL_RANK=$SLURM_LOCALID
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(( $(nproc) > LOCAL_WORLD_SIZE ? $(nproc) / LOCAL_WORLD_SIZE : 1 ))}
exec "$@"' _ \
    /lustre/llmb/venvs/torch/bin/python -m llmb_workloads.torch_pretrain recipe.json >> "$llmb_log" 2>&1
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
