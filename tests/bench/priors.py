#!/usr/bin/env python3
"""What a search gains from what is known before: priors.py PREFIX OUT_FOLDER [options]

For each shape of gemm f32: how many evaluations until a configuration within 5 % of the exhaustive best was
tried (the exhaustive sweep's own times say which those are), when the search begins with nothing (none), with
the static estimate (static), with the winners of the other shapes (near), and with both (all). The space is
the one of 270 configurations of figures.py.

A search sees the winners of all shapes but its own: databases for that are made by halves, so that ten shapes
take 34 exhaustive sweeps. Every search has a daemon of its own on a copy of such a database, whose cubins are
all cached. The kernel's default is a plain one of the 270 (figures.plain_gemm). --part 1/3 measures every third shape only (give each part a folder of its own). A search that
has not got there by the end of its budget counts as one evaluation more than that.
Prints a table and writes OUT_FOLDER/priors.json.
"""
import argparse
import json
import os
import statistics
import tempfile

from daemon import Daemon
from figures import SPACE_270, plain_gemm

SHAPES = [(512, 512, 512), (768, 768, 768), (1024, 1024, 1024), (1000, 1000, 1000), (1536, 1536, 512), (16, 4096, 4096),
          (128, 4096, 4096), (4096, 128, 4096), (4096, 4096, 64), (64, 64, 16384)]
MODES = ["none", "static", "near", "all"]
PARAMS = SPACE_270[SPACE_270.index("--param"):]
MARGIN = 1.05


def shape_text(shape):
    return "M={},N={},K={}".format(*shape)


def searched(daemon):
    """The rows of the last job's search, in the order in which they were measured."""
    job = max(daemon.ctl("jobs"), key=lambda job: job["created_unix_ms"])["job"]
    rows = daemon.ctl("records", "gemm", "--job", job, "--limit", "10000")
    return sorted((row for row in rows if row["run"].endswith("/search")), key=lambda row: row["time"])


def name_of(row):
    return json.dumps(row["config"], sort_keys=True)


def exhaustive(options, shape, db, keep=None):
    """The result and the rows; with `keep` the database is left there, this shape's winner in it."""
    with Daemon(options.prefix, plugins=plain_gemm(options.prefix), env=options.env, db=db) as daemon:
        daemon.devices()
        result = daemon.sweep("gemm", "--shape", shape_text(shape), "--strategy", "exhaustive", *options.params)
        rows = searched(daemon)
        if keep:
            daemon.keep_db(keep)
    return result, rows


def without_each(options, shapes, db, folder):
    """(shape, database with the winners of all other shapes), for each shape; db: of those not in `shapes`."""
    if len(shapes) == 1:
        if shapes[0] in options.wanted:
            yield shapes[0], db
        return
    half = len(shapes) // 2
    for mine, others in ((shapes[:half], shapes[half:]), (shapes[half:], shapes[:half])):
        if not any(shape in options.wanted for shape in mine):
            continue
        grown = db
        for shape in others:
            grown, before = tempfile.mkdtemp(dir=folder) + "/db", grown
            exhaustive(options, shape, before, grown)
        yield from without_each(options, mine, grown, folder)


def search(options, shape, strategy, mode, seed, good, db):
    """Evaluations until one of the good was tried, and what the search began with."""
    with Daemon(options.prefix, plugins=plain_gemm(options.prefix), env=options.env, db=db) as daemon:
        daemon.devices()
        result = daemon.sweep("gemm", "--shape", shape_text(shape), "--strategy", strategy, "--prior", mode,
                              "--seed", str(seed), "--budget", f"evals={options.budget}", *options.params)
        rows = searched(daemon)
    for count, row in enumerate(rows, 1):
        if row["outcome"] == "ok" and name_of(row) in good:
            return count, result["prior"]
    return options.budget + 1, result["prior"]


def measure_shape(options, shape, db):
    result, rows = exhaustive(options, shape, db)
    times = {name_of(row): row["median_ns"] for row in rows if row["outcome"] == "ok"}
    good = {name for name, median_ns in times.items() if median_ns <= MARGIN * min(times.values())}
    report = {"shape": shape, "best": result["best"], "good": len(good), "times": times, "runs": []}
    for strategy in options.strategies:
        for mode in options.modes:
            found = [search(options, shape, strategy, mode, seed, good, db)
                     for seed in range(1, options.seeds + 1)]
            report["runs"].append({"strategy": strategy, "prior": mode, "evaluations": [n for n, _ in found],
                                   "begun": found[0][1]})
    return report


def median_of(report, strategy, mode):
    return next(statistics.median(run["evaluations"]) for run in report["runs"]
                if (run["strategy"], run["prior"]) == (strategy, mode))


def tell(options, reports):
    columns = [(strategy, mode) for strategy in options.strategies for mode in options.modes]
    print("\nevaluations to within 5 % of the exhaustive best, median of", options.seeds, "seeds")
    print(f"{'':<28}" + "".join(f"{strategy + ' ' + mode:>16}" for strategy, mode in columns))
    for report in reports:
        print(f"{shape_text(report['shape']):<28}"
              + "".join(f"{median_of(report, *column):>16g}" for column in columns))
    print(f"{'mean':<28}" + "".join(
        f"{statistics.mean(median_of(report, *column) for report in reports):>16.1f}" for column in columns))


def words(text):
    return text.split(",")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("prefix")
    parser.add_argument("out")
    parser.add_argument("--shape", action="append", help="MxNxK, in place of the ten; may be repeated")
    parser.add_argument("--part", default="1/1", help="I/N: measure only every Nth shape, from the Ith on")
    parser.add_argument("--strategies", type=words, help="default: random, and guided where it is known")
    parser.add_argument("--modes", type=words, default=MODES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=80, help="evaluations of a search")
    parser.add_argument("--param", action="append", help="NAME=VALUES, in place of the 270; may be repeated")
    parser.add_argument("--emulate", action="store_true", help="on the CPU emulator, to try this script")
    options = parser.parse_args()
    options.prefix = os.path.abspath(options.prefix)
    options.env = {"TUNE_EMULATE": "1"} if options.emulate else None
    options.params = [w for text in options.param for w in ("--param", text)] if options.param else PARAMS
    options.shapes = [tuple(map(int, text.split("x"))) for text in options.shape] if options.shape else SHAPES
    first, step = map(int, options.part.split("/"))
    options.wanted = options.shapes[first - 1::step]
    return options


def main():
    options = parse_options()
    os.makedirs(options.out, exist_ok=True)
    with Daemon(options.prefix, env=options.env) as daemon:
        devices = daemon.devices()
        known = daemon.ctl("describe", "gemm")["strategies"]
    options.strategies = options.strategies or [s for s in ("random", "guided") if s in known]
    reports = []
    with tempfile.TemporaryDirectory(prefix="tunerd-priors-") as folder:
        for shape, db in without_each(options, options.shapes, None, folder):
            reports.append(measure_shape(options, shape, db))
            print(shape_text(shape), reports[-1]["good"], "good", reports[-1]["runs"], flush=True)
            with open(options.out + "/priors.json", "w") as file:
                json.dump({"devices": devices, "budget": options.budget, "shapes": reports}, file, indent=1)
    tell(options, reports)


if __name__ == "__main__":
    main()
