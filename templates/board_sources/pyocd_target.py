"""What pyOCD says of a built-in target, as JSON; or all names, if it does not know that one."""

import json
import re
import sys
from unittest.mock import MagicMock

import pyocd
from pyocd.target.builtin import BUILTIN_TARGETS

name = sys.argv[1].lower()
if name not in BUILTIN_TARGETS:
    print(json.dumps({"names": sorted(BUILTIN_TARGETS)}))
    sys.exit()
# A target asks its session for a probe only once it connects.
target = BUILTIN_TARGETS[name](MagicMock())
head = ""
svd = getattr(target, "_svd_location", None)
if svd is not None and svd.filename:
    inside = hasattr(svd.filename, "read")  # of its archive
    with svd.filename if inside else open(svd.filename, "rb") as file:
        head = file.read(65536).decode("utf-8", "replace")
cpu = re.search(r"<cpu>(.*?)</cpu>", head, re.S)
print(
    json.dumps(
        {
            "version": pyocd.__version__,
            "vendor": str(target.vendor),
            "cpu": dict(re.findall(r"<(\w+)>\s*([^<\s]*)\s*<", cpu[1])) if cpu else {},
            "memories": [
                {
                    "name": one.name,
                    "address": one.start,
                    "size": one.length,
                    "type": one.type.name,
                    "access": one.attributes.get("access", ""),
                    "alias": one.alias is not None,
                    "external": bool(one.is_external),
                    "boot": bool(one.is_boot_memory),
                    "testable": bool(one.is_testable),
                }
                for one in target.memory_map
            ],
        }
    )
)
