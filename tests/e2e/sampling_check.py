#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Are sampled profiles unbiased?  sampling_check.py SAMPLE_BYTES RUN...

RUN.truth is the output of tests/workloads/sites.c; RUN.alloc_space and so on hold `FUNCTION VALUE`
lines. A block of s bytes is picked with chance p = 1 - exp(-s/R), independently of all others, and
then counts as 1/p blocks and s/p bytes. So an estimate has variance sum v^2 (1-p)/p, v being 1 or s.

Checked, for each site and each of the four values:
- each run lies within five sigma of the truth. Few picks of small blocks are not normally
  distributed, so a run beyond that fails only if the exact distribution, too, makes it rarer than
  five sigma of a normal one (Chernoff's bound of its tail, which is never too small);
- the mean error over the runs is below 4.5 sigma of that mean, which for 20 runs is one of a run.
"""

import math
import sys

TYPES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
FIVE_SIGMA = 2.87e-7


def fields(words):
    return dict(word.split("=", 1) for word in words)


def read_run(name):
    """The sites' blocks as {site: [(size, allocated, in use)]} and {type: {site: estimate}}."""
    blocks = {}
    with open(name + ".truth", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if words and words[0] == "block":
                f = fields(words[1:])
                blocks.setdefault(f["site"], []).append(
                    (int(f["size"]), int(f["alloc_objects"]), int(f["inuse_objects"]))
                )
    estimates = {}
    for value in TYPES:
        with open(f"{name}.{value}", encoding="utf-8") as file:
            estimates[value] = {site: float(n) for site, n in (line.rsplit(None, 1) for line in file)}
    return blocks, estimates


def tail_bound(terms, x):
    """Chernoff's bound for the sum of n Bernoulli(p) of weight w, over terms (n, p, w), to be as
    far from its mean as x, on that side."""
    mean = sum(n * p * w for n, p, w in terms)
    sign = 1 if x > mean else -1
    largest = max(w for _, _, w in terms)

    def exponent(t):
        total = -sign * t * x
        for n, p, w in terms:
            y = sign * t * w
            total += n * (y + math.log(p + (1 - p) * math.exp(-y)) if y > 0 else math.log1p(p * math.expm1(y)))
        return total

    low, high = 0.0, 50.0 / largest
    for _ in range(100):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if exponent(a) < exponent(b):
            high = b
        else:
            low = a
    return math.exp(min(0.0, exponent(low)))


def main():
    sample_bytes = float(sys.argv[1])
    runs = sys.argv[2:]
    errors = {}
    failures = 0

    for run in runs:
        blocks, estimates = read_run(run)
        if not blocks:
            sys.exit(f"{run}.truth: no blocks")
        for value in TYPES:
            for site, sizes in sorted(blocks.items()):
                truth = variance = 0.0
                terms = []
                for size, allocated, in_use in sizes:
                    n = in_use if value.startswith("inuse") else allocated
                    v = size if value.endswith("space") else 1
                    p = -math.expm1(-size / sample_bytes)
                    truth += n * v
                    variance += n * v * v * (1 - p) / p
                    if n:
                        terms.append((n, p, v / p))
                estimate = estimates[value].get(site, 0.0)
                z = (estimate - truth) / math.sqrt(variance)
                errors.setdefault((value, site), []).append(z)
                if abs(z) > 5 and tail_bound(terms, estimate) < FIVE_SIGMA:
                    print(f"{run}: {site} {value}: {estimate:.0f}, truth {truth:.0f}, {z:+.1f} sigma")
                    failures += 1

    for (value, site), z in sorted(errors.items()):
        mean = sum(z) / len(z)
        verdict = "ok" if abs(mean) * math.sqrt(len(z)) < 4.5 else "BIASED"
        failures += verdict != "ok"
        print(
            f"{site:12} {value:14} mean error {mean:+.2f} sigma of one run,"
            f" {mean * math.sqrt(len(z)):+.1f} of the mean, worst {max(z, key=abs):+.1f}: {verdict}"
        )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
