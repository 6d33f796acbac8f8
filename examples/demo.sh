#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make demo`: two nights on this machine. The second is slow on purpose, and llmb says why.
# Usage: examples/demo.sh [FOLDER OF llmb-run]
# One thread a rank: on a busy machine, several wait for each other, and times say nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-.venv/bin}
SECONDS=$(($(date +%s) - ${DEMO_START:-$(date +%s)})) # make may have installed llmb first
export LLMB_INSTALL=$PWD/.demo COLUMNS=${COLUMNS:-100}

heading() { # TEXT DURATION
    echo
    echo "== $1 (about $2)   $(date +%H:%M:%S), $((SECONDS / 60)) min $((SECONDS % 60)) s after the start"
}

run() { # shows a command as users type it, then runs it
    echo "\$ $*"
    "$bin/$1" "${@:2}"
}

cat <<'TEXT'
This installs torch and three small models on this machine, trains each three times, and accepts the
results as a baseline. A second night is slow on purpose and must end in FAIL, with its cause.
It takes about 3 minutes where nothing else runs; make's first installation of llmb, 1 to 3 minutes
more, is not in them but is in the times after the start. All files are in .demo (1.2 GB).
TEXT

heading "1 of 4: install" "1 min the first time"
run llmb-install --config examples/local.yaml --install .demo --yes
echo "(The demo continues by itself; the lines above are for later.)"

heading "2 of 4: a first night, accepted as the baseline" "1 min"
run llmb-run submit examples/jobs.txt --scale 1 --repeats 3 --env OMP_NUM_THREADS=1 --wait
run llmb-run baseline accept demo --replace

heading "3 of 4: a second night, slow on purpose: a pause of a third in each step" "1 min"
run llmb-run submit examples/jobs.txt --scale 1 --repeats 3 --env OMP_NUM_THREADS=1 --env SLOW_ON_PURPOSE=0.33
run llmb-run jobs wait

heading "4 of 4: the verdict" "2 s"
code=0
run llmb-run compare --baseline demo | tee .demo/compare.txt || code=$?
run llmb-run report --baseline demo -o .demo/report.html || [[ $? -eq 3 ]]
echo
if ((code == 3)); then
    echo "FAIL, as it should be: each step paused, and compare names SLOW_ON_PURPOSE as what differs."
elif grep -q INCONCLUSIVE .demo/compare.txt; then
    echo "note: other programs slow this machine so unevenly that no verdict is certain"
    echo "hint: make demo ends in FAIL where nothing else runs"
else
    echo "error: the second night did not end in FAIL" >&2
    exit 1
fi
echo "Next: open .demo/report.html; to try commands here: export PATH=$(realpath "$bin"):\$PATH LLMB_INSTALL=$LLMB_INSTALL"
