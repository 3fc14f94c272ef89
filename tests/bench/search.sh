#!/bin/sh
# Scores each search strategy on recorded spaces: search.sh TUNECTL SPACES_FOLDER [RUNS [STRATEGY ...]]
#
# SPACES_FOLDER has the tables (*.csv.gz; those called *-sample are left out), index.json and score_search.py.
# For each strategy: without noise, with the noise of a sweep's medians and of single launches, and with 16
# proposals under way at once; then what choosing a configuration costs in a space of a million. Writes results/search-DATE.txt beside this file, and prints it.
set -eu
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
tunectl=$1 spaces=$2 runs=${3:-100}
[ $# -gt 3 ] && shift 3 || set -- random anneal genetic surrogate guided
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$here/results"
result=$here/results/search-$(date +%Y-%m-%d).txt

simulate_all() { # options of simulate; leaves $pairs for the scorer, and each space's costs in $folder/SPACE.cost
    pairs=
    for table in "$spaces"/*.csv.gz; do
        name=$(basename "$table" .csv.gz)
        case $name in *-sample) continue ;; esac
        "$tunectl" --json simulate "$table" --budget 200 --runs "$runs" --seed 1 --trace "$folder/$name.csv" "$@" \
            > "$folder/$name.cost"
        pairs="$pairs $table=$folder/$name.csv"
    done
}

# A line: strategy, way, overall score, its standard error, mean quality after 25, cost; then each space's score.
score() { # STRATEGY WAY
    # shellcheck disable=SC2086
    python3 "$spaces/score_search.py" --json $pairs | python3 -c '
import glob, json, sys
strategy, way, folder = sys.argv[1:]
scores = json.load(sys.stdin)
costs = [json.load(open(path)) for path in glob.glob(folder + "/*.cost")]
spaces = scores["spaces"]
quality = sum(row["mean_quality"] for s in spaces for row in s["rows"] if row["budget"] == 25) / len(spaces)
print("%-10s %-9s %+6.3f %5.3f  %5.3f %7.0f " % (strategy, way, scores["overall"], scores["stderr"], quality,
      sum(c["choosing_us"] for c in costs) / len(costs)),
      "".join(" %+7.3f" % s["area"] for s in spaces))' "$1" "$2" "$folder"
}

# Ten params of four values, 990,138 configurations valid. The time is a bowl.
make_million() {
    python3 - "$folder" << 'PY'
import itertools, json, sys
folder, names = sys.argv[1], "ABCDEFGHIJ"
values = [1, 2, 4, 8]
limit = 51
with open(folder + "/million.csv", "w") as table:
    table.write(",".join(names) + ",time_ms\n")
    rows = 0
    for row in itertools.product(values, repeat=10):
        if sum(row) <= limit:
            table.write("%s,%.6f\n" % (",".join(map(str, row)),
                        1 + sum((i + 1) * (v - values[i % 4]) ** 2 for i, v in enumerate(row)) / 100))
            rows += 1
json.dump({"params": {n: values for n in names}, "constraints": ["%s <= %d" % ("+".join(names), limit)]},
          open(folder + "/million.json", "w"))
PY
}

{
    echo "# $(date +%Y-%m-%d), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1): $runs runs of 200 evaluations"
    echo "# area score (random 0, the optimum at once 1), standard error, best/found after 25, us to choose one;"
    echo "# spaces: $(for t in "$spaces"/*.csv.gz; do basename "$t" .csv.gz; done | grep -v sample | tr '\n' ' ')"
    for strategy; do
        simulate_all --strategy "$strategy"
        score "$strategy" quiet
        simulate_all --strategy "$strategy" --noise
        score "$strategy" noise
        simulate_all --strategy "$strategy" --noise --repeats 1
        score "$strategy" launch
        simulate_all --strategy "$strategy" --outstanding 16
        score "$strategy" batch16
    done
    make_million
    for strategy; do
        "$tunectl" simulate "$folder/million.csv" --space "$folder/million.json" --strategy "$strategy" --budget 200 \
            --runs 1 --trace "$folder/trace" | sed -n "1s/, best.*//p; 3s/^/$strategy: /p"
    done
} | tee "$result"
