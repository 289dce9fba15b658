#!/bin/sh
# Training on the first CUDA device against the processor, in one command from the root of a checkout:
#     CLOISTER_DATA=/path/to/tables benchmarks/gpu.sh [FILE.md] [BIN]
# FILE.md gets the tables (training time, utility); BIN holds the commands of the environment, .venv/bin by default.
set -eu
out=${1:-docs/benchmarks/gpu.md}
bin=${2:-.venv/bin}
: "${CLOISTER_DATA:?the folder that holds adult/adult.csv}"
export CLOISTER_DATA CLOISTER_WIDE="${CLOISTER_WIDE:-data/raw/wide}"

"$bin/python" -c 'from cloister.devices import resolve_device; print("training on", resolve_device("cuda"))'
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
test -f "$CLOISTER_WIDE/wide.yaml" || "$bin/python" -m benchmarks.tables.wide "$CLOISTER_WIDE"
test -f "$out" || printf '# Training on a CUDA device\n\n<!-- generated: gpu -->\n<!-- end: gpu -->\n' > "$out"
"$bin/cloister" benchmark benchmarks/gpu.yaml --markdown "$out"
