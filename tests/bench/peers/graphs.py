"""Graphs for the rows of bfs, and bfs without pull as its peer."""
import atexit
import json
import os
import shutil
import tempfile

import torch

import tunerd
from daemon import Daemon


def rmat(scale, degree):
    """R-MAT with a = .57, b = c = .19, each edge both ways, double edges and loops kept: (offsets, columns)."""
    count = degree << scale
    u = torch.zeros(count, dtype=torch.int64, device="cuda")
    v = torch.zeros(count, dtype=torch.int64, device="cuda")
    for _ in range(scale):
        part = torch.rand(count, device="cuda")
        u = 2 * u + (part >= 0.76)
        v = 2 * v + (((part >= 0.57) & (part < 0.76)) | (part >= 0.95))
    return csr(1 << scale, torch.cat((u, v)), torch.cat((v, u)))


def grid(side):
    """side x side vertices, each with its 4 neighbours."""
    number = torch.arange(side * side, device="cuda").view(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    one = torch.cat([a.reshape(-1) for a, _ in pairs])
    other = torch.cat([b.reshape(-1) for _, b in pairs])
    return csr(side * side, torch.cat((one, other)), torch.cat((other, one)))


def csr(rows, u, v):
    keys = torch.sort(u * rows + v).values
    offsets = torch.zeros(rows + 1, dtype=torch.int64, device="cuda")
    offsets[1:] = torch.cumsum(torch.bincount(keys // rows, minlength=rows), 0)
    return offsets.to(torch.int32), (keys % rows).to(torch.int32)


def dims_of(offsets, columns):
    """What a shape says of a graph."""
    dims = tunerd.describe_csr(offsets.cpu().numpy(), columns.cpu().numpy(), offsets.numel() - 1)
    return {name: value for name, value in dims.items() if name != "COLUMNS"}


class PushOnly:
    """A daemon of its own with a kernel that is bfs with the one variant `frontier`, swept on `inputs`."""

    def __init__(self, prefix, inputs, seconds=5):
        with open(prefix + "/share/tunerd/plugins/bfs/bfs.json") as file:
            manifest = json.load(file)
        manifest["name"] = "bfs_push"
        fixed = {"ALPHA": 8, "BETA": 64, "PROBE": 2, "VERTICES": 1, "WORDS": 4}
        for param in manifest["params"]:
            if param["name"] == "VARIANT":
                param["values"] = [v for v in param["values"] if v["name"] == "frontier"]
        manifest["default"] = [{**config, **fixed, "VARIANT": "frontier"} for config in manifest["default"]]
        self._folder = tempfile.mkdtemp(prefix="tunerd-push-")
        os.makedirs(self._folder + "/bfs_push")
        with open(self._folder + "/bfs_push/bfs_push.json", "w") as file:
            json.dump(manifest, file)
        self._daemon = Daemon(prefix, plugins=self._folder)
        atexit.register(self.close)
        self._daemon.devices()
        for each in inputs:
            self._daemon.ctl("sweep", "bfs_push", "--input", each, "--budget", "evals=400,seconds=%d" % seconds)
        self.kernel = tunerd.Kernel(tunerd.connect(self._daemon.socket), "bfs_push")

    def close(self):
        self._daemon.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)
