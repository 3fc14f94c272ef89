#!/usr/bin/env python3
"""Asks the daemon for the best launch of a matrix product and prints it.

    PYTHONPATH=/usr/local/share/tunerd/python python3 get.py 4096 4096 4096
"""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import tunerd


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: get.py M N K")
    shape = dict(zip("MNK", map(int, sys.argv[1:])))
    with tunerd.connect() as client:
        answer = client.get("gemm", shape)
    print("from", answer["origin"], "config", answer["config"])
    for launch in answer["launches"]:
        if "memset" in launch:
            print("memset", launch["memset"])
        elif "constant" in launch:
            print("copy", launch["buffer"], "to", launch["constant"])
        else:
            print(launch["entry"], "grid", launch["grid"], "block", launch["block"],
                  "shared", launch["shared_bytes"], "bytes")


if __name__ == "__main__":
    try:
        main()
    except tunerd.Error as error:
        sys.exit(str(error))
