#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Counts the bytes of a file's code in a process that differ from the file: breakpoints.py PID [FILE]

FILE is a part of its path, by default that of libc."""

import sys

pid = sys.argv[1]
wanted = sys.argv[2] if len(sys.argv) > 2 else "/libc.so"
different = 0
with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
    for line in maps:
        words = line.split()
        if len(words) < 6 or "x" not in words[1] or wanted not in words[5]:
            continue
        start, end = (int(x, 16) for x in words[0].split("-"))
        with open(words[5], "rb") as file:
            file.seek(int(words[2], 16))
            on_disk = file.read(end - start)
        memory.seek(start)
        in_memory = memory.read(len(on_disk))
        different += sum(a != b for a, b in zip(on_disk, in_memory))
print(different)
