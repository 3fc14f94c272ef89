#!/usr/bin/env python3
"""Records of elsewhere on a real GPU: share_suite.py PREFIX OUT_FOLDER [EXAMPLES]    exit status 77: there is no GPU here

PREFIX and EXAMPLES as for serve_suite.py. A new daemon answers from the shipped records of its GPU model, and the
products that its gemm answers give are checked; a sweep of one's own takes their place; a second daemon imports what
the first exports and answers alike. Where nothing is shipped for this model, the first part is passed over. Prints a
table and writes OUT_FOLDER/share.json. About a minute.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
sys.path.insert(0, HERE)
import serve_suite  # noqa: E402
from daemon import Daemon  # noqa: E402
from serve_suite import check  # noqa: E402

COMPARED = ("1024,1024,1024", "4096,4096,4096", "16,4096,4096", "64,64,262144", "4095,4095,4095")


def text(shape):
    return ",".join(f"{name}={size}" for name, size in shape.items())


def shipped_keys(prefix, gpu):
    folder = prefix + "/share/tunerd/records/"
    keys = {}
    for name in sorted(os.listdir(folder)):
        with open(folder + name, encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row.get("gpu") == gpu:
                    keys[row["kernel"], row["dtype"], text(row["shape"])] = True
    return list(keys)


def is_shipped(answer):
    return answer["origin"] == "exact" and answer["same_gpu"] and answer["shipped"]


def ask(daemon, kernel, dtype, shape):
    return daemon.ctl("get", kernel, "--dtype", dtype, "--shape", shape)


def answers(daemon, keys):
    rows = [(key, ask(daemon, *key)) for key in keys]
    wrong = [key for key, answer in rows if not is_shipped(answer)]
    check(f"all {len(keys)} shipped keys are answered from what was shipped", not wrong, str(wrong[:3]))
    return [{"key": key, "config": answer["config"], "median_ns": answer["median_ns"]} for key, answer in rows]


def own_row(daemon, key):
    kernel, dtype, shape = key
    daemon.sweep(kernel, "--dtype", dtype, "--shape", shape, "--budget", "evals=60")
    answer = ask(daemon, *key)
    check("a sweep of one's own takes its place", answer["origin"] == "exact" and not answer["shipped"])
    return answer


def exchange(prefix, daemon, key, answer, out):
    daemon.ctl("export", "-o", out + "/first.jsonl")
    with Daemon(prefix) as second:
        second.devices()
        report = second.ctl("import", out + "/first.jsonl")
        theirs = ask(second, *key)
        check("what was imported is answered alike",
              theirs["config"] == answer["config"] and theirs["same_gpu"] and not theirs["shipped"], str(report))
        second.ctl("export", "-o", out + "/second.jsonl")
    with open(out + "/first.jsonl", "rb") as first, open(out + "/second.jsonl", "rb") as other:
        check("both export the same bytes", first.read() == other.read())


def main():
    prefix, out = (os.path.abspath(word) for word in sys.argv[1:3])
    if not os.path.exists("/dev/nvidiactl"):
        print("skipped: there is no GPU on this machine")
        sys.exit(77)
    examples = serve_suite.find_examples(prefix)
    os.makedirs(out, exist_ok=True)
    result = {}
    with Daemon(prefix) as daemon:
        gpu = daemon.devices()[0]["name"]
        keys = shipped_keys(prefix, gpu)
        if keys:
            result["answers"] = answers(daemon, keys)
            result["products"] = [serve_suite.multiply(daemon.socket, examples + "/tune_gemm", shape)
                                  for shape in COMPARED]
            result["compared"] = serve_suite.compare(daemon.socket, examples + "/tune_gemm_cublas", COMPARED)
        else:
            print(f"passed over: nothing is shipped for {gpu}")
        key = ("gemm", "f32", "M=1024,N=1024,K=1024")
        exchange(prefix, daemon, key, own_row(daemon, key), out)
    with open(out + "/share.json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    sys.exit(1 if serve_suite.failures else 0)


if __name__ == "__main__":
    main()
