"""Client of tunerd, the daemon that tunes CUDA kernels and serves the best launch configuration. Python
3.8 or later; needs nothing but the standard library.

    import tunerd
    with tunerd.Client() as client:
        answer = client.get("gemm", {"M": 4096, "N": 4096, "K": 4096})
        for launch in answer["launches"]: ...

        for event in client.sweep("gemm", [{"M": 64, "N": 64, "K": 64}], seed=1):
            print(event["done"], "of", event["total"]) if "done" in event else print(event["results"])

        client.records(kernel="gemm")          # dicts; records_frame() for pandas

        softmax = tunerd.Kernel(client, "softmax")
        y = softmax(x)                         # x: a PyTorch tensor or a CuPy array

Requests, answers and notifications are the JSON of the daemon as dicts and lists; Client has a method
for each. A Client survives a restart of the daemon: it connects again, and asks again where asking
twice does no harm. News come by subscribe() and next_news(), or by poll() in an event loop (fileno()).

Kernel launches on PyTorch tensors and CuPy arrays through the CUDA driver; tunerd.cupy.raw_module(answer)
makes a CuPy RawModule of an answer's code. describe_csr(offsets, columns, n_columns) gives the shape of a
sparse matrix or graph of yours. Neither PyTorch, CuPy nor pandas is needed until it is used.

A failure is a tunerd.Error with `code`, the daemon's stable word ("not_found", "no_daemon", ...). A program
that has to go on without a daemon catches "no_daemon" and uses what it used before it knew tunerd.
"""
from .client import PROTOCOL, SYSTEM_SOCKET, Client, Error, Json, Shape, connect
from .kernel import Kernel
from .sparse import describe_csr

__all__ = ["PROTOCOL", "SYSTEM_SOCKET", "Client", "Error", "Json", "Kernel", "Shape", "connect", "describe_csr"]
__version__ = "0.1.0"
