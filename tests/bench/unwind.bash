#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What a stack costs: BPF run time by depth, instructions the verifier goes through, and the size
# and build time of unwind tables.
set -euo pipefail

BUILD=$(cd "${BUILD:-build}" && pwd)
HEAPTAP=$BUILD/heaptap
COUNT=${COUNT:-50000}
DEPTHS=(1 9 65 205)
export PATH=$PATH:/usr/sbin

WORK=$(mktemp -d)
STARTED=()
STATS_BEFORE=$(sysctl -n kernel.bpf_stats_enabled)

cleanup() {
	local pid

	for pid in "${STARTED[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	sysctl -qw "kernel.bpf_stats_enabled=$STATS_BEFORE"
	rm -rf "$WORK"
}
trap cleanup EXIT
cd "$WORK"

# wait_for FILE PATTERN: until a line matches, at most a minute.
wait_for() {
	local end=$((SECONDS + 60))

	until grep -qE -- "$2" "$1"; do
		[ "$SECONDS" -lt "$end" ] || { cat "$1" >&2; return 1; }
		sleep 0.2
	done
}

# Runs and time of the programs at malloc, as `COUNT NS`.
alloc_run_time() {
	bpftool -j prog show | jq -r '[.[] | select(.name == "alloc_session" or .name == "alloc_enter" or
		.name == "alloc_return")] | "\(map(.run_cnt // 0) | add // 0) \(map(.run_time_ns // 0) | add // 0)"'
}

# measure_depth FRAMES: prints the ns of one counted allocation, entry and return together.
measure_depth() {
	local target profiler runs ns

	rm -f in
	mkfifo in
	exec 8<>in
	: >out
	"$BUILD/bench/depth" "$1" "$COUNT" <in >out 8>&- &
	target=$!
	STARTED+=("$target")
	wait_for out ready
	: >err
	"$HEAPTAP" record --sample-bytes 1 --alloc-interval 0 -o p -p "$target" 2>err 8>&- &
	profiler=$!
	STARTED+=("$profiler")
	wait_for err '^Attached to '
	"$BUILD/bench/verified" | grep -v '^heaptap_try ' | sort -u >verified
	sysctl -qw kernel.bpf_stats_enabled=1
	echo go >&8
	wait_for out 'done'
	read -r runs ns < <(alloc_run_time)
	sysctl -qw "kernel.bpf_stats_enabled=$STATS_BEFORE"
	echo end >&8
	wait "$target" "$profiler" || true
	exec 8>&-
	awk -v runs="$runs" -v ns="$ns" 'BEGIN { print ns / (runs / 2) }'
}

# The fastest of some rounds: a machine is slowed down by others, never sped up.
declare -A NS
for ((round = 0; round < ${ROUNDS:-5}; round++)); do
	for depth in "${DEPTHS[@]}"; do
		NS[$depth]=$(printf '%s\n' "${NS[$depth]:-inf}" "$(measure_depth "$depth")" | sort -g | head -n 1)
	done
done

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
