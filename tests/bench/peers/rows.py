"""What peers.py measures: for each family the shapes, the vendor's call and what shall be reached."""
import torch
import torch.nn.functional as F

import graphs
import tunerd

TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "i32": torch.int32, "u8": torch.uint8, "u32": torch.uint32}
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i32": 4, "u8": 1, "u32": 4}


def random(dtype, *shape, below=None):
    if below is not None:
        wide = torch.uint8 if dtype == "u8" else torch.int32
        values = torch.randint(0, below, shape, device="cuda", dtype=wide)
        return values.view(torch.uint32) if dtype == "u32" else values
    if dtype == "i32":
        return torch.randint(-2**31, 2**31 - 1, shape, device="cuda", dtype=torch.int32)
    return (2 * torch.rand(*shape, device="cuda") - 1).to(TORCH[dtype])


def empty(dtype, *shape):
    return torch.empty(*shape, device="cuda", dtype=TORCH[dtype])


class Row:
    """One line. `size` counts each input read once and each output written once."""

    def __init__(self, kernel, dims, dtype, size, tensors, peers, goals=(), alike=None):
        self.kernel, self.dims, self.dtype, self.bytes = kernel, dims, dtype, size
        self.tensors, self.peers, self._goals, self._alike = tensors, peers, goals, alike

    def goals(self, result):
        return [goal(result) for goal in self._goals]

    def check(self, ours, functions, tensors):
        """Our result is the vendor's within what the order of additions may change."""
        if self._alike:
            self._alike(ours, functions, tensors)


def at_least(peer, wanted):
    """The vendor's time by ours: the median or its interval reaches `wanted`."""
    def goal(result):
        ratio = result["ratio"][peer]
        return "%.2f x %s" % (wanted, peer), wanted, ratio["interval"][1] >= wanted
    return goal


def softmax_goal(peer):
    """Time at most the larger of the peer's / 1.3 and 1.05 of a device copy."""
    def goal(result):
        most = max(result["us"][peer] / 1.3, 1.05 * result["us"]["copy"])
        return "at most %.1f us" % most, most, result["interval_us"]["ours"][0] <= most
    return goal


def same(output, expected, tolerance=0.0):
    """tolerance: relative and absolute; 0: to the last bit."""
    def alike(ours, functions, tensors):
        ours()
        got = tensors[output].clone().reshape(-1)
        want = expected(functions, tensors).reshape(-1)
        if tolerance == 0.0:
            is_right = torch.equal(got, want)
        else:
            is_right = torch.allclose(got.double(), want.double(), rtol=tolerance, atol=tolerance)
        if not is_right:
            raise RuntimeError("%s is not what the vendor computes" % output)
    return alike


def all_of(*checks):
    def alike(ours, functions, tensors):
        for check in checks:
            check(ours, functions, tensors)
    return alike


def both(first, second):
    def alike(ours, functions, tensors):
        first(ours, functions, tensors)
        second(ours, functions, tensors)
    return alike


def walk(n):
    """How far two sums of n numbers in [-1, 1) may differ by the order of additions alone."""
    return 1e-5 * n ** 0.5


def through(peer, name):
    """Runs the vendor's call, which writes tensors[name]."""
    def expected(functions, tensors):
        functions[peer]()
        return tensors[name]
    return expected


def transposes():
    for dtype, sides in (("f32", (1024, 4096, 8192, 16384, 4095)), ("f64", (4096, 8192)),
                         ("f16", (4096, 8192, 16384))):
        for n in sides:
            goals = [at_least("cublas", 1.0)] if dtype != "f16" else []
            if n >= 8192:
                goals.append(at_least("copy", 0.95))
            yield Row("transpose", {"M": n, "N": n}, dtype, 2 * n * n * BYTES[dtype],
                      lambda n=n, d=dtype: {"in": random(d, n, n), "out": empty(d, n, n),
                                            "theirs": empty(d, n, n)},
                      lambda vendor, t, n=n, d=dtype:
                      {"cublas": vendor.prepare("geam_" + d, [t["in"], t["theirs"]], [n, n])}
                      if d != "f16" else {"torch": lambda: t["theirs"].copy_(t["in"].t())},
                      goals, same("out", lambda _, t: t["in"].t().contiguous()))


def reduces():
    for dtype, op, summing, powers in (("f32", "sum", "plain", (20, 24, 28, 30)), ("f32", "max", "plain", (28,)),
                                       ("f16", "sum", "plain", (28,)), ("i32", "sum", "plain", (28,)),
                                       ("f32", "sum", "kahan", (28,)), ("f32", "sum", "pairwise", (28,))):
        for power in powers:
            n = 1 << power
            out = "i32" if dtype == "i32" else "f32"
            yield Row("reduce", {"N": n, "OP": op, "SUM": summing}, dtype, n * BYTES[dtype],
                      lambda n=n, d=dtype, o=out: {"x": random(d, n), "out": empty(o, 1), "theirs": empty(o, 1)},
                      lambda vendor, t, n=n, d=dtype, op=op:
                      {"cub": vendor.prepare("reduce_%s_%s" % (op, d), [t["x"], t["theirs"]], [n])},
                      [at_least("cub", 1.0)],
                      same("out", through("cub", "theirs"), 0.0 if op == "max" or dtype == "i32" else walk(n)))


def scans():
    for mode, dtype, powers in (("exclusive", "f32", (20, 24, 28)), ("inclusive", "f32", (28,)),
                                ("exclusive", "i32", (28,))):
        for power in powers:
            n = 1 << power
            yield Row("scan", {"N": n, "MODE": mode}, dtype, 2 * n * BYTES[dtype],
                      lambda n=n, d=dtype: {"x": random(d, n), "out": empty(d, n), "theirs": empty(d, n)},
                      lambda vendor, t, n=n, d=dtype, m=mode:
                      {"cub": vendor.prepare("scan_%s_%s" % (m, d), [t["x"], t["theirs"]], [n])},
                      [at_least("cub", 0.95)],
                      same("out", through("cub", "theirs"), 0.0 if dtype == "i32" else walk(n)))
    for power in (20, 24, 28):
        n = 1 << power
        yield Row("segmented_scan", {"N": n, "LENGTH": "short"}, "f32", 9 * n, lambda n=n: segments(n),
                  lambda vendor, t, n=n:
                  {"cub": vendor.prepare("scan_by_key_f32", [t["keys"], t["x"], t["theirs"]], [n])},
                  [at_least("cub", 0.95)], same("out", through("cub", "theirs"), 1e-3))
        yield Row("compact", {"N": n}, "f32", 4 * n + 2 * n,
                  lambda n=n: {"x": random("f32", n), "out": torch.zeros(n, device="cuda"),
                               "count": torch.zeros(1, dtype=torch.int64, device="cuda"),
                               "theirs": torch.zeros(n, device="cuda"),
                               "their_count": torch.zeros(1, dtype=torch.int64, device="cuda")},
                  lambda vendor, t, n=n:
                  {"cub": vendor.prepare("select_f32", [t["x"], t["theirs"], t["their_count"]], [n])},
                  [at_least("cub", 0.95)],
                  all_of(same("out", through("cub", "theirs")), same("count", through("cub", "their_count"))))


def segments(n):
    """Flags of which 1 begins a segment, and CUB's keys for the same segments: as many bytes."""
    flags = random("u8", n, below=64)
    keys = (torch.cumsum(flags == 1, 0) % 2).to(torch.uint8)
    return {"x": random("f32", n), "flags": flags, "out": empty("f32", n), "keys": keys, "theirs": empty("f32", n)}


def histograms():
    for dtype, bins, powers in (("u8", 256, (22, 26, 30)), ("u32", 256, (26,)), ("u32", 4096, (26,))):
        for power in powers:
            for values in ("uniform", "equal"):
                n = 1 << power
                below = bins if values == "uniform" else 1
                yield Row("histogram", {"N": n, "BINS": bins, "INPUT": values}, dtype, n * BYTES[dtype],
                          lambda n=n, d=dtype, b=below, bins=bins:
                          {"x": random(d, n, below=b), "counts": empty("u32", bins),
                           "theirs": torch.empty(bins, dtype=torch.int32, device="cuda").view(torch.uint32)},
                          lambda vendor, t, n=n, d=dtype, b=bins:
                          {"cub": vendor.prepare("histogram_" + d, [t["x"], t["theirs"]], [n, b])},
                          [at_least("cub", 1.3)],
                          same("counts", lambda f, t: through("cub", "theirs")(f, t)))


def keys(n):
    """u32 of any bits."""
    return random("i32", n).view(torch.uint32)


def numbers(n):
    return torch.arange(n, device="cuda", dtype=torch.int32).view(torch.uint32)


def ascending(n):
    """u32 in order; PyTorch sorts none, so they are sorted as i64."""
    values = torch.randint(0, 2**32, (n,), device="cuda", dtype=torch.int64)
    return values.sort().values.to(torch.int32).view(torch.uint32)


def sorts():
    n = 1 << 26
    yield Row("merge", {"A": n, "B": n}, "u32", 16 * n,
              lambda: {"a": ascending(n), "b": ascending(n), "out": empty("u32", 2 * n), "theirs": empty("u32", 2 * n)},
              lambda vendor, t: {"cub": vendor.prepare("merge_u32", [t["a"], t["b"], t["theirs"]], [n, n])},
              [at_least("cub", 0.95)], same("out", through("cub", "theirs")))
    for with_values in (False, True):
        for power in (20, 24, 28):
            yield sort(1 << power, with_values)


def sort(n, with_values):
    """CUB sorts pairs into tensors of its own; values are numbers, so that they show an order that is not stable."""
    count = n if with_values else 0
    op, theirs = ("sort_pairs_u32", ["keys", "values", "theirs", "their_values"]) if with_values else (
        "sort_keys_u32", ["keys", "theirs"])
    return Row("radix_sort", {"N": n, "VALUES": "pairs" if with_values else "keys", "KEYS": "random"}, "u32",
               8 * (n + count),
               lambda: {"keys": keys(n), "values": numbers(count), "out_keys": empty("u32", n),
                        "out_values": empty("u32", count), "theirs": empty("u32", n),
                        "their_values": empty("u32", count)},
               lambda vendor, t: {"cub": vendor.prepare(op, [t[name] for name in theirs], [n])},
               [at_least("cub", 0.8)],
               both(same("out_keys", through("cub", "theirs")), same("out_values", through("cub", "their_values"))))


def convolutions():
    for n, k in ((4096, 3), (4096, 5), (4096, 17), (8192, 9)):
        goals = [at_least("cudnn", 10.0)] + ([at_least("copy", 0.8)] if k == 3 else [])
        yield Row("conv2d", {"H": n, "W": n, "K": k, "BORDER": "zero"}, "f32", 8 * n * n,
                  lambda n=n, k=k: {"x": random("f32", n, n), "filter": random("f32", k, k), "y": empty("f32", n, n)},
                  lambda vendor, t, n=n, k=k:
                  {"cudnn": lambda x=t["x"].view(1, 1, n, n), w=t["filter"].view(1, 1, k, k):
                   F.conv2d(x, w, padding=k // 2)}, goals,
                  same("y", lambda f, t, n=n: f["cudnn"]().view(n, n), 1e-3))
    n, k = 1 << 26, 9
    yield Row("conv1d", {"N": n, "K": k, "BORDER": "zero"}, "f32", 8 * n,
              lambda: {"x": random("f32", n), "filter": random("f32", k), "y": empty("f32", n)},
              lambda vendor, t: {"cudnn": lambda x=t["x"].view(1, 1, n), w=t["filter"].view(1, 1, k):
                                 F.conv1d(x, w, padding=k // 2)}, [at_least("copy", 0.8)],
              same("y", lambda f, t: f["cudnn"]().view(n), 1e-3))
    for side, taps in ((4096, 5), (4096, 17)):
        yield Row("conv_separable", {"H": side, "W": side, "K": taps, "BORDER": "zero"}, "f32", 8 * side * side,
                  lambda s=side, k=taps: {"x": random("f32", s, s), "row_filter": random("f32", k),
                                          "column_filter": random("f32", k), "y": empty("f32", s, s)},
                  lambda vendor, t, s=side, k=taps: {"cudnn": separable(t, s, k)},
                  [at_least("cudnn", 10.0)], same("y", lambda f, t: f["cudnn"](), 1e-3))
    for c_in, c_out, side, taps in ((64, 64, 224, 3), (256, 256, 56, 3), (512, 512, 28, 1)):
        yield channels(c_in, c_out, side, taps)


def channels(c_in, c_out, side, taps):
    return Row("conv_channels", {"C_IN": c_in, "C_OUT": c_out, "H": side, "W": side, "K": taps}, "f32",
               4 * (c_in + c_out) * side * side,
               lambda: {"x": random("f32", c_in, side, side), "filter": random("f32", c_out, c_in, taps, taps),
                        "y": empty("f32", c_out, side, side)},
               lambda vendor, t: {"cudnn": lambda x=t["x"].unsqueeze(0), w=t["filter"]:
                                  F.conv2d(x, w, padding=taps // 2)}, (),
               same("y", lambda f, t: f["cudnn"](), 1e-2))


def separable(t, side, k):
    x = t["x"].view(1, 1, side, side)
    row, columns = t["row_filter"].view(1, 1, 1, k), t["column_filter"].view(1, 1, k, 1)
    return lambda: F.conv2d(F.conv2d(x, row, padding=(0, k // 2)), columns, padding=(k // 2, 0))


STAR = {7: [0.0625], 25: [0.0625, 0.03125, 0.015625, 0.015625]}


def stencils():
    for steps in (1, 4):
        n = 8192
        yield Row("stencil2d", {"H": n, "W": n, "STEPS": steps}, "f32", 8 * n * n,
                  lambda n=n: {"in": random("f32", n, n), "out": empty("f32", n, n)}, lambda *_: {},
                  [at_least("copy", 0.85)] if steps == 1 else [],
                  same("out", lambda _, t, s=steps: jacobi(t["in"], [0.125], s), 1e-5))
        for points in (7, 25):
            n = 512
            yield Row("stencil3d", {"D": n, "H": n, "W": n, "POINTS": points, "STEPS": steps}, "f32", 8 * n**3,
                      lambda n=n: {"in": random("f32", n, n, n), "out": empty("f32", n, n, n)}, lambda *_: {},
                      [at_least("copy", 0.85)] if (steps, points) == (1, 7) else [],
                      same("out", lambda _, t, s=steps, p=points: jacobi(t["in"], STAR[p], s), 1e-5))


def jacobi(u, weights, steps):
    """Steps of a star stencil by slices: inner cells only, those nearer than its radius to a face stay."""
    radius, axes = len(weights), u.dim()
    inner = tuple(slice(radius, n - radius) for n in u.shape)
    for _ in range(steps):
        after = u.clone()
        after[inner] = (1 - 2 * axes * sum(weights)) * u[inner]
        for axis in range(axes):
            for distance, weight in enumerate(weights, 1):
                for way in (-distance, distance):
                    beside = list(inner)
                    beside[axis] = slice(radius + way, u.shape[axis] - radius + way)
                    after[inner] += weight * u[tuple(beside)]
        u = after
    return u


def norms():
    for dtype in ("f32", "f16"):
        for m, n in ((4096, 1024), (16384, 4096), (65536, 1024), (1024, 65536)):
            size = 2 * m * n * BYTES[dtype]
            near = 1e-5 if dtype == "f32" else 1e-2
            yield Row("softmax", {"M": m, "N": n}, dtype, size,
                      lambda m=m, n=n, d=dtype: {"x": random(d, m, n), "y": empty(d, m, n)},
                      lambda vendor, t: {"torch": lambda: torch.softmax(t["x"], 1)},
                      [softmax_goal("torch")], same("y", lambda f, t: f["torch"](), near))
            yield Row("layernorm", {"M": m, "N": n}, dtype, size,
                      lambda m=m, n=n, d=dtype: {"x": random(d, m, n), "weight": random(d, n),
                                                 "bias": random(d, n), "y": empty(d, m, n)},
                      lambda vendor, t, n=n: {"torch": lambda: F.layer_norm(t["x"], (n,), t["weight"], t["bias"])},
                      [softmax_goal("torch")], same("y", lambda f, t: f["torch"](), 30 * near))


def elementwise():
    for power in (24, 28):
        n = 1 << power
        yield Row("add", {"N": n}, "f32", 12 * n,
                  lambda n=n: {"x": random("f32", n), "y": random("f32", n), "z": empty("f32", n),
                               "theirs": empty("f32", n)},
                  lambda vendor, t: {"torch": lambda: torch.add(t["x"], t["y"], out=t["theirs"])},
                  [at_least("torch", 1.0)], same("z", through("torch", "theirs")))
        yield Row("saxpy", {"N": n}, "f32", 12 * n,
                  lambda n=n: {"x": random("f32", n), "y": random("f32", n), "theirs": random("f32", n)},
                  lambda vendor, t: {"torch": lambda: t["theirs"].add_(t["x"], alpha=0.7)},
                  [at_least("torch", 1.0)], updated("y", "theirs"))
        yield Row("rgb_to_grey", {"N": n}, "u8", 4 * n,
                  lambda n=n: {"rgb": random("u8", n, 3, below=256), "grey": empty("u8", n)},
                  lambda vendor, t: {"torch": grey_of(t["rgb"])}, [at_least("torch", 1.0)],
                  same("grey", lambda f, t: f["torch"](), 1.0))
        yield Row("aos_to_soa", {"N": n, "FIELDS": 4}, "f32", 32 * n,
                  lambda n=n: {"aos": random("f32", n, 4), "soa": empty("f32", 4, n)},
                  lambda vendor, t: {"torch": lambda: t["aos"].t().contiguous()},
                  [at_least("torch", 1.0)], same("soa", lambda f, t: f["torch"]()))


def updated(ours_name, theirs_name):
    """In-place results: both begin with the same."""
    def alike(ours, functions, tensors):
        tensors[theirs_name].copy_(tensors[ours_name])
        ours()
        functions["torch"]()
        if not torch.allclose(tensors[ours_name], tensors[theirs_name], rtol=1e-6, atol=1e-6):
            raise RuntimeError("%s is not what the vendor computes" % ours_name)
    return alike


def grey_of(rgb):
    """The cheapest way in PyTorch that was found: a product with the weights in f16."""
    weights = torch.tensor([0.299, 0.587, 0.114], device="cuda", dtype=torch.float16)
    return lambda: torch.mv(rgb.to(torch.float16), weights).to(torch.uint8)


def random_rows(n, each):
    return torch.full((n,), each, device="cuda"), torch.randint(0, n, (n, each), device="cuda").sort(1).values.view(-1)


def banded_rows(n, each, width):
    """`each` of the `width` columns around the diagonal."""
    first = (torch.arange(n, device="cuda") - width // 2).clamp(0, n - width)
    taken = torch.rand(n, width, device="cuda").argsort(1)[:, :each].sort(1).values
    return torch.full((n,), each, device="cuda"), (first.unsqueeze(1) + taken).view(-1)


def power_law_rows(n, each, exponent=2.1):
    """Lengths by a power law with that mean, of n at most, in any order; columns anywhere."""
    share = (torch.arange(n, device="cuda", dtype=torch.float64) + 0.5) / n
    low, high = 1e-3, 1e3
    for _ in range(60):  # the shortest length, by bisection
        shortest = (low * high) ** 0.5
        lengths = (shortest * share ** (1 / (1 - exponent))).clamp(max=n).round().long()
        low, high = (shortest, high) if lengths.sum() < n * each else (low, shortest)
    excess = int(lengths.sum()) - n * each
    lengths[n - abs(excess):] -= 1 if excess > 0 else -1
    lengths = lengths[torch.randperm(n, device="cuda")]
    row = torch.repeat_interleave(torch.arange(n, device="cuda"), lengths)
    place = (row * n + torch.randint(0, n, row.shape, device="cuda")).sort().values
    return lengths, place % n


def sparse():
    n = 1 << 20
    for make, words in ((random_rows, (n, 32)), (power_law_rows, (n, 32)), (banded_rows, (n, 32, 64))):
        for dtype in ("f32", "f64"):
            torch.manual_seed(1)
            lengths, columns = make(*words)
            offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
            columns = columns.int()
            count = columns.numel()
            dims = tunerd.describe_csr(offsets.cpu().numpy(), columns.cpu().numpy(), n)
            yield Row("spmv", dims, dtype, (4 + BYTES[dtype]) * (count + n) + BYTES[dtype] * n,
                      lambda o=offsets, c=columns, d=dtype:
                      {"offsets": o, "columns": c, "values": random(d, c.numel()), "x": random(d, n),
                       "y": empty(d, n), "theirs": empty(d, n)},
                      lambda vendor, t, d=dtype:
                      {name: vendor.prepare("spmv_%s%s" % (d, way), [t[k] for k in (
                          "offsets", "columns", "values", "x", "theirs")], [n, n, t["columns"].numel()])
                       for name, way in (("cusparse", ""), ("cusparse_alg2", "_alg2"))},
                      [at_least("cusparse", 1.0), at_least("cusparse_alg2", 1.0)] if dtype == "f32" else [],
                      same("y", through("cusparse", "theirs"), 1e-3 if dtype == "f32" else 1e-11))


def searches():
    """No vendor's: direction is compared with the best that pushes only."""
    push_only = []

    def pushed(vendor, t, dims):
        if not push_only:
            push_only.append(graphs.PushOnly(vendor.prefix, ("rmat:scale=20,degree=16", "grid:side=1024")))
        inputs = [t["offsets"], t["columns"], t["source"]]
        return {"push": lambda: push_only[0].kernel(*inputs, out={"levels": t["theirs"]}, dims=dims)}

    for make, words, goals in ((graphs.rmat, (20, 16), [at_least("push", 2.0)]),
                               (graphs.rmat, (22, 16), [at_least("push", 2.0)]), (graphs.grid, (1024,), [])):
        torch.manual_seed(1)
        offsets, columns = make(*words)
        dims = graphs.dims_of(offsets, columns)
        n = dims["ROWS"]
        yield Row("bfs", dims, "i32", 4 * (2 * n + columns.numel()),
                  lambda o=offsets, c=columns, n=n:
                  {"offsets": o, "columns": c, "source": torch.diff(o).argmax().view(1), "levels": empty("i32", n),
                   "theirs": empty("i32", n)},
                  lambda vendor, t, d=dims: pushed(vendor, t, d), goals, same("levels", through("push", "theirs")))


def all_rows():
    for family in (transposes, reduces, scans, histograms, sorts, convolutions, stencils, norms, elementwise, sparse,
                   searches):
        yield from family()
