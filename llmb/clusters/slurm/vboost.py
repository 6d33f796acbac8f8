# SPDX-License-Identifier: Apache-2.0
"""The lines of a batch script that raise the GPUs' vboost on every node, and write into the log what came of it. Pure.

Source: PerfEnvPlugin of NeMo 2.3 does it by one srun before the training, with sudo, outside of any container.
"""

from llmb.clusters.quote import bash
from llmb.runs.launch import Launch

SECONDS = 60  # until a node without an answer is not waited for any more
SAID = "llmb vboost: "  # how the line in the log begins; llmb.logs.conditions reads it

# What one task does on its node. sudo never asks: without a rule for nvidia-smi it says so and ends.
_ON_NODE = """\
llmb_said=$(sudo -n nvidia-smi boost-slider --vboost 1 2>&1) && echo "llmb: set" ||
    echo "llmb: $SLURMD_NODENAME: ${llmb_said##*$'\\n'}\""""

# The step takes nothing from that of the training (--overlap), which starts whatever becomes of this one. Of several
# reasons the first that a node gave, else srun's own last word.
_LINES = """\
llmb_boost=$(timeout -k 5 {seconds} srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 \\
    bash -c {on_node} 2>&1 < /dev/null)
llmb_code=$?
llmb_set=$(grep -c '^llmb: set$' <<< "$llmb_boost")
llmb_why=$(grep -v '^llmb: set$' <<< "$llmb_boost" | sed -n 's/^llmb: //p' | head -n 1)
if (( llmb_code == 124 || llmb_code == 137 )); then
    llmb_why="no answer within {seconds} s"
    scancel "$SLURM_JOB_ID.0" 2> /dev/null
fi
if (( llmb_set < {nodes} )); then
    llmb_why=": ${{llmb_why:-${{llmb_boost##*$'\\n'}}}}"
else
    llmb_why=
fi
echo "{said}set on $llmb_set of {nodes} {word}$llmb_why" >> "$llmb_log"
"""


def lines(launch: Launch) -> list[str]:
    """The lines, none for a launch that leaves vboost alone."""
    if not launch.vboost:
        return []
    word = "node" if launch.nodes == 1 else "nodes"
    text = _LINES.format(seconds=SECONDS, nodes=launch.nodes, on_node=bash(_ON_NODE), said=SAID, word=word)
    return [text]
