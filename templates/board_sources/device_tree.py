"""Memories, clocks and choices of a device tree, as JSON, by Zephyr's dtlib.

Arguments: the folder of dtlib, the preprocessed tree, and what is compatible with memory.
"""

import contextlib
import json
import sys

sys.path.insert(0, sys.argv[1])
from devicetree.dtlib import DT

dt = DT(sys.argv[2])


def cells(node, key):
    return node.props[key].to_num() if node and key in node.props else 0


def join(words):
    return sum(word << 32 * at for at, word in enumerate(reversed(words)))


def place(node):
    """Address and size, as the processor sees them: ``ranges`` translate, if there are any."""
    parent, nums = node.parent, node.props["reg"].to_nums()
    wide, size_wide = cells(parent, "#address-cells") or 2, cells(parent, "#size-cells")
    begin, size = join(nums[:wide]), join(nums[wide : wide + size_wide])
    while parent is not None and parent.parent is not None and "ranges" in parent.props:
        up, own = cells(parent.parent, "#address-cells") or 2, cells(parent, "#address-cells") or 2
        step, ranges = own + up + cells(parent, "#size-cells"), parent.props["ranges"]
        rows = ranges.to_nums() if ranges.value else []  # empty: nothing to translate
        for at in range(0, len(rows), step):
            child, outer = join(rows[at : at + own]), join(rows[at + own : at + own + up])
            if child <= begin < child + join(rows[at + own + up : at + step]):
                begin += outer - child
                break
        parent = parent.parent
    return [begin, size]


chosen = dt.get_node("/chosen").props if dt.has_node("/chosen") else {}
paths = {}
for key, prop in chosen.items():
    with contextlib.suppress(Exception):  # some choices are no nodes
        paths[key] = prop.to_path().path
nodes = {}
for node in dt.node_iter():
    props = node.props
    kinds = props["compatible"].to_strings() if "compatible" in props else []
    one = nodes[node.path] = {"compatible": kinds, "labels": node.labels}
    status = props["status"].to_string() if "status" in props else "okay"
    wanted = node.path in paths.values() or set(kinds) & set(sys.argv[3:])
    if "reg" in props and status in ("okay", "ok") and wanted:
        one["place"] = place(node)
    if "clock-frequency" in props and "fixed-clock" not in kinds:
        one["clock"] = cells(node, "clock-frequency")
        one["gives_clocks"] = "#clock-cells" in props and "reg" in props
    if "current-speed" in props:
        one["speed"] = cells(node, "current-speed")
print(json.dumps({"nodes": nodes, "chosen": paths}))
