#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What a stack costs: BPF run time by depth, instructions the verifier goes through, and the size
# and build time of unwind tables.
set -euo pipefail

ROUNDS=${ROUNDS:-5}
COUNT=${COUNT:-50000}
DEPTHS=(1 9 65 205)
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

# Runs and time of the programs at malloc, as `COUNT NS`.
alloc_run_time() {
	bpftool -j prog show | jq -r '[.[] | select(.name == "alloc_session" or .name == "alloc_enter" or
		.name == "alloc_return")] | "\(map(.run_cnt // 0) | add // 0) \(map(.run_time_ns // 0) | add // 0)"'
}

# measure_depth FRAMES: prints the ns of one counted allocation, entry and return together.
measure_depth() {
	start_target "$BENCH/depth" "$1" "$COUNT"
	start_heaptap --sample-bytes 1 --alloc-interval 0
	"$BENCH/verified" | grep -v '^heaptap_try ' | sort -u >verified
	start_stats
	run_target 'done' alloc_run_time >run_time
	restore_stats
	stop_profiler
	awk '{ print $2 / ($1 / 2) }' run_time
}

# The fastest of some rounds: a machine is slowed down by others, never sped up.
declare -A NS

measure() {
	local depth

	for depth in "${DEPTHS[@]}"; do
		NS[$depth]=$(least "${NS[$depth]:-}" "$(measure_depth "$depth")")
	done
}

rounds measure
echo "BPF run time of one counted allocation, its stack walk included:"
for depth in "${DEPTHS[@]}"; do
	# main, __libc_start_call_main, __libc_start_main and _start stand below.
	printf '  %4d frames %8.0f ns\n' $((depth + 4)) "${NS[$depth]}"
done
awk -v a="${NS[1]}" -v b="${NS[205]}" 'BEGIN { printf "  per frame   %8.1f ns (limit 40)\n", (b - a) / 204 }'
echo
echo "Instructions the verifier went through (limit 50000):"
sed 's/^/  /' verified
echo
echo "Unwind tables (limit 0.03 MB of rows per MB of code, libLLVM in 600 ms):"
[ ! -x "$BUILD/oracle/rows_size" ] || "$BUILD/oracle/rows_size" /usr/lib/x86_64-linux-gnu/libc.so.6 \
	/usr/lib/x86_64-linux-gnu/libstdc++.so.6 /usr/bin/python3.11 /usr/lib/x86_64-linux-gnu/libLLVM-14.so.1
