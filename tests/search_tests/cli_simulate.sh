#!/bin/sh
# `tunectl simulate` from outside: cli_simulate.sh TUNECTL SPACES_FOLDER
set -eu
tunectl=$1
spaces=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "cli_simulate: $*" >&2
    exit 1
}

simulate() { # TRACE options...
    trace=$1
    shift
    "$tunectl" simulate "$spaces/convolution.csv" --trace "$trace" --budget 40 --runs 3 "$@" > "$folder/out"
}

# The same seed gives the same bytes, another seed others, noise other times.
simulate "$folder/a" --strategy guided --seed 7
simulate "$folder/b" --strategy guided --seed 7
simulate "$folder/c" --strategy guided --seed 8
simulate "$folder/d" --strategy random --seed 7
simulate "$folder/e" --strategy random --seed 7 --noise
cmp -s "$folder/a" "$folder/b" || fail "the same seed gave another trace"
! cmp -s "$folder/a" "$folder/c" || fail "another seed gave the same trace"
! cmp -s "$folder/d" "$folder/e" || fail "noise changed nothing"
simulate "$folder/one" --strategy random --seed 7 --noise --repeats 1
! cmp -s "$folder/one" "$folder/e" || fail "the number of repeats changed nothing"
[ "$(cut -d, -f1-3 "$folder/d")" = "$(cut -d, -f1-3 "$folder/e")" ] || fail "noise changed what random tries"

# The head, and a row per evaluation.
[ "$(head -1 "$folder/a")" = run_id,evaluation_index,config_index,time_ms ] || fail "head of the trace"
[ "$(wc -l < "$folder/a")" -eq 121 ] || fail "rows of the trace"

# Each row of the trace is a row of the table: its time, or nothing where it failed.
awk -F, 'NR == FNR { if (FNR > 1) { time[FNR - 2] = $5; state[FNR - 2] = $6 } next }
    FNR > 1 && (state[$3] == "ok" ? $4 + 0 != time[$3] + 0 : $4 != "") { print "row " FNR; bad = 1 }
    FNR > 1 && $4 == "" { failed++ }
    END { exit bad || !failed }' "$spaces/convolution.csv" "$folder/d" \
    || fail "times of the trace are not those of the table"

# A gzipped table reads alike; the description is named, since the folder has none.
gzip -c "$spaces/convolution.csv" > "$folder/convolution.csv.gz"
"$tunectl" simulate "$folder/convolution.csv.gz" --space "$spaces/index.json" --strategy guided \
    --trace "$folder/f" --budget 40 --runs 3 --seed 7 > /dev/null
cmp -s "$folder/a" "$folder/f" || fail "a gzipped table gave another trace"

# A part of the table: what it lacks is not tried, and the budget is for what it has.
head -101 "$spaces/convolution.csv" > "$folder/convolution.csv"
"$tunectl" simulate "$folder/convolution.csv" --space "$spaces/index.json" --strategy guided \
    --trace "$folder/g" --budget 30 > /dev/null
awk -F, 'FNR > 1 && $3 >= 100 { bad = 1 } END { exit bad || NR != 31 }' "$folder/g" || fail "a part of a table"

# One JSON value.
"$tunectl" --json simulate "$spaces/convolution.csv" --trace "$folder/h" --strategy genetic --budget 5 |
    python3 -c 'import json, sys; v = json.load(sys.stdin); assert v["evaluations"] == 5, v' || fail "--json"

# What is wrong is told.
expect() { # STATUS WORD options...
    status=0
    want=$1 word=$2
    shift 2
    "$tunectl" simulate "$@" > "$folder/out" 2>&1 || status=$?
    [ "$status" -eq "$want" ] || fail "status $status for: $*"
    grep -q -e "$word" "$folder/out" || fail "no \"$word\" for: $* ($(cat "$folder/out"))"
}
expect 2 "there are: exhaustive" "$spaces/convolution.csv" --strategy clever --trace "$folder/x"
expect 2 "budget" "$spaces/convolution.csv" --strategy random --trace "$folder/x" --budget 0
expect 1 "index.json" "$folder/convolution.csv" --strategy random --trace "$folder/x"
expect 1 "No such file" "$spaces/convolution.csv" --strategy random --trace "$folder/no/x"
sed '5s/^16/17/' "$spaces/convolution.csv" > "$folder/convolution.csv"
expect 1 "row 3" "$folder/convolution.csv" --strategy random --trace "$folder/x" --space "$spaces/index.json"
sed '5s/.*/16,1/' "$spaces/convolution.csv" > "$folder/convolution.csv"
expect 1 "2 cells" "$folder/convolution.csv" --strategy random --trace "$folder/x" --space "$spaces/index.json"
sed '5p' "$spaces/convolution.csv" > "$folder/convolution.csv"
expect 1 "same configuration" "$folder/convolution.csv" --strategy random --trace "$folder/x" \
    --space "$spaces/index.json"
echo "cli_simulate: ok"
