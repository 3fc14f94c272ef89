#!/bin/bash
# Makes the shipped records of the GPU of this machine: measures what it reaches, sweeps what
# shapes.txt says and writes OUT/records.jsonl and OUT/limits.json, to be kept beside this script as
# ARCH-GPU.jsonl and ARCH-GPU.limits.json.
#
#     make.sh PREFIX OUT [KERNEL...]
#
# For a look: MAKE_SHAPES is read instead of shapes.txt, MAKE_SECONDS taken instead of its seconds.
#
# PREFIX is where tunerd is installed, OUT an existing folder; the database stays in OUT/db, so that
# a second call for other kernels goes on with it. About 18 minutes on an H200, 4 without gemm.
set -euo pipefail
here=$(dirname "$0")
prefix=$1 out=$2
shift 2
kernels=" $* "

export TUNE_SOCKET=$out/tunerd.sock
"$prefix/bin/tunerd" --foreground --socket "$TUNE_SOCKET" --db "$out/db" > "$out/tunerd.log" 2>&1 &
daemon=$!
trap 'kill $daemon 2> /dev/null || true; wait $daemon 2> /dev/null || true' EXIT
tunectl() { "$prefix/bin/tunectl" --socket "$TUNE_SOCKET" "$@"; }
for _ in $(seq 100); do
    [ -S "$TUNE_SOCKET" ] && tunectl devices > /dev/null 2>&1 && break
    sleep 0.1
done

tunectl --json devices --measure | python3 -c '
import json, sys
gpu = json.load(sys.stdin)[0]["limits"]
keys = ("device", "driver", "dram_bytes_per_s", "flops_f32", "time_unix_ms")
json.dump([{key: gpu[key] for key in keys}], sys.stdout, indent=1)
print()' > "$out/limits.json"

grep -v '^#' "${MAKE_SHAPES:-$here/shapes.txt}" | while read -r kernel dtype seconds shapes; do
    [ "$kernels" = "  " ] || [ "${kernels#* "$kernel" }" != "$kernels" ] || continue
    for shape in $shapes; do
        what=--shape
        [ "${shape#*:}" = "$shape" ] || what=--input
        tunectl sweep "$kernel" --dtype "$dtype" $what "$shape" --seed 1 \
            --budget "evals=1200,seconds=${MAKE_SECONDS:-$seconds}" < /dev/null | tail -n 12
    done
done
if tunectl export --best --anonymous -o "$out/records.jsonl"; then
    wc -l "$out/records.jsonl"
fi
