#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make demo: profile a program with a growing cache, a leak and much short-lived memory.
set -eu
build=${BUILD:-build}
heaptap=$build/heaptap
out=$build/demo
seconds=6

mkdir -p "$out"
echo "A service with a cache that grows, a leak and a lot of short-lived allocations runs for"
echo "$seconds seconds. heaptap watches it from outside and takes a snapshot every 2 seconds:"
echo
echo "  \$ heaptap record --interval 2 --sample-bytes 64K -o $out/demo -- $build/workloads/demo $seconds"
"$heaptap" record --interval 2 --sample-bytes 64K -o "$out/demo" -- "$build/workloads/demo" "$seconds"

files=("$out"/demo.*.pb.gz)
first=${files[0]}
last=${files[-1]}
echo
echo "What is in use at the end, by the function that asked for it:"
echo
echo "  \$ heaptap report $last"
"$heaptap" report "$last"
echo
echo "What has grown since the first snapshot, which is where to look for a leak:"
echo
echo "  \$ heaptap report --base $first $last"
"$heaptap" report --base "$first" "$last"
echo
echo "What was allocated in all, freed or not:"
echo
echo "  \$ heaptap report --sample-index alloc_space $last"
"$heaptap" report --sample-index alloc_space "$last"
echo
echo "Snapshots written: ${files[*]}"
echo "In a browser, as a graph or flame graph:  go tool pprof -http=: $last"
echo "(go tool pprof is in the package golang-go; graphs need graphviz, too)"
