#!/bin/bash
# Makes the shipped records of the GPU of this machine: measures what it reaches, sweeps the shapes
# below and writes OUT/records.jsonl and OUT/limits.json, to be kept beside this script as
# ARCH-GPU.jsonl and ARCH-GPU.limits.json.
#
#     make.sh PREFIX OUT [KERNEL...]
#
# PREFIX is where tunerd is installed, OUT an existing folder; the database stays in OUT/db, so that
# a second call for other kernels goes on with it. About 15 minutes on an H200.
set -euo pipefail
prefix=$1 out=$2
shift 2
kernels=${*:-gemm transpose reduce softmax}

export TUNE_SOCKET=$out/tunerd.sock
"$prefix/bin/tunerd" --foreground --socket "$TUNE_SOCKET" --db "$out/db" > "$out/tunerd.log" 2>&1 &
daemon=$!
trap 'kill $daemon 2> /dev/null || true; wait $daemon 2> /dev/null || true' EXIT
tunectl() { "$prefix/bin/tunectl" --socket "$TUNE_SOCKET" "$@"; }
for _ in $(seq 100); do
    [ -S "$TUNE_SOCKET" ] && tunectl devices > /dev/null 2>&1 && break
    sleep 0.1
done

mnk() { sed 's/\([0-9]*\)x\([0-9]*\)x\([0-9]*\)/M=\1,N=\2,K=\3/'; }
mn() { sed 's/\([0-9]*\)x\([0-9]*\)/M=\1,N=\2/'; }
sweep() { # kernel dtype budget; shapes on standard input
    while read -r shape; do
        tunectl sweep "$1" --dtype "$2" --shape "$shape" --seed 1 --budget "$3" | tail -n 12
    done
}

tunectl --json devices --measure | python3 -c '
import json, sys
gpu = json.load(sys.stdin)[0]["limits"]
keys = ("device", "driver", "dram_bytes_per_s", "flops_f32", "time_unix_ms")
json.dump([{key: gpu[key] for key in keys}], sys.stdout, indent=1)
print()' > "$out/limits.json"

for kernel in $kernels; do
    case $kernel in
    gemm)
        printf '%s\n' 1024x1024x1024 2048x2048x2048 4096x4096x4096 1000x1000x1000 4095x4095x4095 \
            16x4096x4096 1x4096x4096 128x4096x4096 4096x128x4096 4096x4096x64 64x64x262144 \
            8192x1024x4096 256x256x256 512x512x512 8192x8192x8192 \
            1021x1019x1013 4096x16x4096 129x127x65 255x255x255 511x511x511 2047x2047x2047 \
            1x4099x257 17x13x7 8191x1023x4095 4096x1x4096 8191x8191x8191 4096x4096x1024 |
            mnk | sweep gemm f32 evals=1200,seconds=30
        ;;
    transpose)
        printf '%s\n' 1024x1024 4096x4096 8192x8192 16384x16384 4095x4095 4096x1024 1024x4096 |
            mn | sweep transpose f32 evals=400,seconds=20
        ;;
    reduce)
        printf 'N=%s\n' 1048576 16777216 268435456 1073741824 | sweep reduce f32 evals=400,seconds=20
        ;;
    softmax)
        for dtype in f32 f16 bf16; do
            printf '%s\n' 4096x1024 8192x8192 16384x4096 1024x50257 128x131072 |
                mn | sweep softmax $dtype evals=400,seconds=15
        done
        ;;
    esac
done
if tunectl export --best --anonymous -o "$out/records.jsonl"; then
    wc -l "$out/records.jsonl"
fi
