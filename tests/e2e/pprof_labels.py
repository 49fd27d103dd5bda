#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints a profile's sums by label and leaf: `pprof_labels.py FILE TYPE[,TYPE...] LABEL...`.

A line is the value of each LABEL, or `-` where a sample has none, the function that called the
allocator, and a sum for each TYPE; blanks within a value are underscores. Without a LABEL, the names of all
labels that samples have. Reads the protobuf by itself: an independent reader.
"""
import collections
import gzip
import sys

sys.dont_write_bytecode = True
from pprof_stacks import first, message, numbers


def main():
    path, types, wanted = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
    profile = message(gzip.decompress(open(path, "rb").read()))
    strings = [text.decode().replace(" ", "_") for text in profile[6]]
    names = [strings[first(message(value), 1)] for value in profile[1]]
    columns = [names.index(name) for name in types]
    functions = {}
    for function in map(message, profile.get(5, [])):
        functions[first(function, 1)] = strings[first(function, 2)]
    leaves = {}
    for location in map(message, profile.get(4, [])):
        lines = location.get(4)
        if lines:
            name = functions[first(message(lines[0]), 1)]
        else:
            name = "0x%x" % first(location, 3)
        leaves[first(location, 1)] = name
    sums = collections.defaultdict(lambda: [0] * len(columns))
    used = set()
    for sample in map(message, profile.get(2, [])):
        labels = {}
        for label in map(message, sample.get(3, [])):
            text = strings[first(label, 2)] if 2 in label else str(first(label, 3))
            labels[strings[first(label, 1)]] = text
        used.update(labels)
        stack = list(numbers(sample.get(1, [])))
        key = [labels.get(name, "-") for name in wanted]
        key.append(leaves[stack[0]] if stack else "-")
        values = list(numbers(sample[2]))
        for i, column in enumerate(columns):
            sums[tuple(key)][i] += values[column]
    if not wanted:
        print("\n".join(sorted(used)))
        return
    for key, values in sorted(sums.items()):
        print(*key, *values)


main()
