"""A report's page of a model, put together as `tunectl report` does, from the parts in the tree."""

import json
import os

SOURCE = os.environ.get("TUNE_SOURCE_DIR") or os.path.abspath(f"{__file__}/../../..")
PARTS = os.path.join(SOURCE, "client", "tunectl", "report")
PLACES = {"CSS": "page.css", "LIBRARY": "echarts.min.js", "BASE": "base.js",
          "EXPLORE": "explore.js", "RESULTS": "results.js", "SCRIPT": "page.js"}


def part(name):
    with open(os.path.join(PARTS, name), encoding="utf-8") as file:
        return file.read()


def compose(model):
    """The whole page. Filling a place must leave what is in it alone: so the frame is cut first."""
    texts = {place: part(name) for place, name in PLACES.items()}
    texts["DATA"] = json.dumps(model, separators=(",", ":")).replace("<", "\\u003c")
    pieces = [part("page.html")]
    for place, text in texts.items():
        marker = f"/*TUNERD:{place}*/"
        holders = [i for i, piece in enumerate(pieces) if marker in piece and i % 2 == 0]
        assert len(holders) == 1 and pieces[holders[0]].count(marker) == 1, f"{marker}: not once"
        before, after = pieces[holders[0]].split(marker)
        pieces[holders[0]:holders[0] + 1] = [before, text, after]
    return "".join(pieces)


def write(model, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(compose(model))
    return "file://" + os.path.abspath(path)
