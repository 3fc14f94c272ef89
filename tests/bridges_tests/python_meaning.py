"""Random expressions, evaluated by bridges/python.h and by Python: the values must be the same.

usage: python_meaning.py EVALUATE [COUNT [SEED]]
"""
import random
import re
import resource
import subprocess
import sys

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
NAMES = {"a": 7, "b": -3, "f": 2.5, "t": True, "s": "xy"}
SAFE = {f.__name__: f for f in (list, tuple, min, max, sum, abs, len, int, float, bool, str, round,
                                sorted, pow)}
SAFE["range"] = lambda *args: list(range(*args))


def atom(r):
    return r.choice(["0", "1", "2", "3", "-1", "-7", "16", "0x1F", "1_000", "0.5", "2.0", "1e3", "-2.25",
                     "True", "False", "a", "b", "f", "t", "s", "'x'", "'xy'"])


def number(r, depth):
    return r.choice(["0", "1", "2", "5", "-3", "a", "b", "f", "0.5", "t"]) if depth <= 0 else expression(r, depth - 1)


def listed(r, depth):
    kind = r.randrange(6)
    if kind == 0:
        return "[%s]" % ", ".join(number(r, depth - 1) for _ in range(r.randrange(4)))
    if kind == 1:
        return "range(%s)" % ", ".join(str(r.randrange(-4, 9)) for _ in range(r.randrange(1, 4)))
    if kind == 2:
        return "[%s for i in %s if %s]" % (r.choice(["i", "2**i", "i * i - a"]), "range(%d)" % r.randrange(6),
                                           r.choice(["i", "i % 2", "i > 1", "not i", "i != 3 and i < 5"]))
    if kind == 3:
        return "[i * j for i in range(%d) for j in range(i, %d)]" % (r.randrange(4), r.randrange(5))
    if kind == 4:
        return "%s + %s" % (listed(r, depth - 1), listed(r, depth - 1))
    return "([%s] * %d)" % (number(r, 0), r.randrange(4))


def bracketed(r, depth):
    """A list that no operator around it takes apart."""
    return "(%s)" % listed(r, depth)


def expression(r, depth):
    if depth <= 0:
        return atom(r)
    kind = r.randrange(16)
    sub = lambda: expression(r, depth - 1)
    if kind < 5:
        return "%s %s %s" % (sub(), r.choice(["+", "-", "*", "/", "//", "%"]), sub())
    if kind == 5:
        return "(%s)" % sub()
    if kind == 6:
        return "%s ** %d" % (atom(r), r.randrange(-2, 6))
    if kind == 7:
        return "%s %s %s" % (sub(), r.choice(["==", "!=", "<", "<=", ">", ">="]), sub())
    if kind == 8:
        return "%s %s %s %s %s" % (atom(r), r.choice(["<", "<="]), sub(), r.choice(["<", "<=", "!="]), atom(r))
    if kind == 9:
        return "%s %s %s" % (sub(), r.choice(["and", "or"]), sub())
    if kind == 10:
        return r.choice(["not %s", "-%s", "+%s"]) % sub()
    if kind == 11:
        return "%s if %s else %s" % (sub(), sub(), sub())
    if kind == 12:
        return "(%s %s %s)" % (sub(), r.choice(["in", "not in"]), bracketed(r, depth))
    if kind == 13:
        return listed(r, depth)
    if kind == 14:
        return "%s[%d]" % (r.choice(["[3, 1, 2]", "range(5)", "(1, 'x')"]), r.randrange(-4, 5))
    name = r.choice(["min", "max", "sum", "abs", "len", "int", "float", "bool", "round", "sorted", "list"])
    return "%s(%s)" % (name, listed(r, depth) if name in ("sum", "len", "sorted", "list") or r.random() < 0.2
                       else ", ".join(sub() for _ in range(2 if name in ("min", "max") else 1)))


def shown(value):
    """As evaluate.c prints it; tuples and ranges are lists there."""
    if isinstance(value, (list, tuple, range)):
        return "[%s]" % ", ".join(shown(v) for v in value)
    if isinstance(value, float) and value != 0 and not 1e-300 < abs(value) < 1e300:
        return "error"
    if isinstance(value, complex) or (isinstance(value, int) and not -2**63 <= value < 2**63):
        return "error"
    return repr(value)


def meant(text):
    try:
        return shown(eval(text, {"__builtins__": {}, **SAFE, **NAMES}))
    except Exception:
        return "error"


def unsigned_zero(text):
    """The sign of a zero is lost here, and never asked for."""
    return re.sub(r"-0\.0(?![0-9])", "0.0", text)


def main():
    r = random.Random(SEED)
    texts = [expression(r, r.randrange(1, 5)) for _ in range(COUNT)]
    answer = subprocess.run([sys.argv[1]], input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    lines = answer.stdout.split("\n")[:-1]
    # What outgrows our limits would outgrow the machine's in Python; sanitizers reserve more, so only from here.
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    assert len(lines) == COUNT, "%d answers" % len(lines)
    wrong = errors = 0
    for text, ours in zip(texts, lines):
        theirs = meant(text)
        errors += theirs == "error"
        is_format = ours == "error" and "%" in text and ("'" in text or "s" in text)  # 'text' % value
        if unsigned_zero(ours) != unsigned_zero(theirs) and not is_format:
            wrong += 1
            if wrong <= 10:
                print("%s\n  Python: %s\n  ours:   %s" % (text, theirs, ours))
    print("%d expressions (seed %d), %d of them errors, %d differ" % (COUNT, SEED, errors, wrong))
    assert errors < COUNT / 2, "too few expressions have a value"
    return 1 if wrong else 0


sys.exit(main())
