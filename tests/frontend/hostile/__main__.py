"""python -m tests.frontend.hostile [--count N] [--seed N]"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if __name__ == "__main__":
    from hostile.run import attempts

    parser = argparse.ArgumentParser(prog="python -m tests.frontend.hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for attempt in attempts(args.seed, args.count):
        counts[attempt.verdict] += 1
        if attempt.is_fault:
            print(f"file {attempt.number}: {attempt.verdict}: {attempt.detail}", flush=True)
    print(f"{sum(counts.values())} hostile files: {dict(counts)}")
    sys.exit(0 if set(counts) <= {"compiled", "refused"} else 1)
