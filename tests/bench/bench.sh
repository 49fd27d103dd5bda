#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What profiling costs, as one table: ns per malloc+free pair and the ratio to the unprofiled
# program. CPU is what the program itself spent, traps included, and not disturbed by what else the
# machine does. Every row is measured in turn, several rounds long, and the fastest round counts: a
# machine is slowed down by others, never sped up. Ratios within one table are what to compare.
#
# BUILD, ROUNDS, SECONDS_PER_ROW and FLOOR_POINTS ("FILE:OFFSET FILE:OFFSET" of malloc and free)
# come from the environment.
set -euo pipefail

BUILD=$(cd "${BUILD:-build}" && pwd)
HEAPTAP=$BUILD/heaptap
BENCH=$BUILD/bench
ROUNDS=${ROUNDS:-3}
SECONDS_PER_ROW=${SECONDS_PER_ROW:-2}
LIBS=/usr/lib/x86_64-linux-gnu
TCMALLOC=$LIBS/libtcmalloc.so.4
JEMALLOC=$LIBS/libjemalloc.so.2
PATIENCE=30

export PATH=$PATH:/usr/sbin
unset "${!HEAP_PROFILE_@}" TCMALLOC_SAMPLE_PARAMETER MALLOC_CONF

[ "$(id -u)" -eq 0 ] || {
	echo "bench.sh: needs root to place probes: run it with sudo" >&2
	exit 1
}

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

# wait_for FILE PATTERN PID: until a line of the process matches.
wait_for() {
	local end=$((SECONDS + PATIENCE))

	until grep -qE -- "$2" "$1"; do
		if [ "$SECONDS" -ge "$end" ] || ! kill -0 "$3" 2>/dev/null; then
			cat "$1" >&2
			return 1
		fi
		sleep 0.05
	done
}

# Plain runs, in an environment of their own: run ASSIGNMENT... -- prints ns per pair and of CPU.
run_pair() {
	env "$@" "$BENCH/pair" "$SECONDS_PER_ROW" 2>/dev/null | sed -n 's/ ns per pair, \(.*\) of CPU$/ \1/p'
}

run_heaptrack() {
	heaptrack -r -o "$WORK/heaptrack" "$BENCH/pair" "$SECONDS_PER_ROW" 2>/dev/null |
		sed -n 's/ ns per pair, \(.*\) of CPU$/ \1/p'
}

# start_pair: the program waits, for a profiler to attach; sets PAIR.
start_pair() {
	rm -f pair.in
	mkfifo pair.in
	exec 8<>pair.in
	: >pair.out
	"$BENCH/pair" --wait "$SECONDS_PER_ROW" <pair.in >pair.out 8>&- &
	PAIR=$!
	STARTED+=("$PAIR")
	wait_for pair.out '^ready' "$PAIR"
}

# finish_pair [COMMAND]: lets it run, then COMMAND while it is still there, and prints ns per pair and of CPU.
finish_pair() {
	echo go >&8
	wait_for pair.out ' of CPU$' "$PAIR"
	"${1:-true}"
	echo end >&8
	wait "$PAIR"
	sed -n 's/ ns per pair, \(.*\) of CPU$/ \1/p' pair.out
}

# An ended target ends its profiler, too.
stop_profiler() {
	kill "$PROFILER" 2>/dev/null || true
	wait "$PROFILER" || true
}

# start_heaptap OPTION...: ready, on the waiting program; sets PROFILER.
start_heaptap() {
	: >heaptap.err
	"$HEAPTAP" record -v -p "$PAIR" -o "$WORK/heaptap" "$@" 2>heaptap.err >&2 8>&- &
	PROFILER=$!
	STARTED+=("$PROFILER")
	wait_for heaptap.err '^Attached to ' "$PROFILER"
}

run_heaptap() {
	start_pair
	start_heaptap "$@"
	finish_pair >result
	stop_profiler
	cat result
}

# probe_point FUNCTION: FILE:OFFSET where heaptap put its probe, by its own words.
probe_point() {
	local path delta value vaddr offset

	read -r path delta < <(sed -nE "s/^Probe point: (.*) $1\\+([0-9]+).*/\\1 \\2/p" heaptap.err)
	value=$(readelf -W --dyn-syms "$path" |
		awk -v name="$1" '{ sub(/@.*/, "", $8) } $8 == name && $7 != "UND" { print $2; exit }')
	read -r offset vaddr < <(readelf -Wl "$path" | awk '$1 == "LOAD" && / R E / { print $2, $3; exit }')
	printf '%s:%#x\n' "$path" $((16#$value + delta - vaddr + offset))
}

# start_floor: likewise.
start_floor() {
	local points

	read -ra points <<<"${FLOOR_POINTS:-$(probe_point malloc) $(probe_point free)}"
	rm -f floor.in
	mkfifo floor.in
	exec 9<>floor.in
	: >floor.out
	"$BENCH/floor" "$PAIR" "${points[@]}" <floor.in >floor.out 2>&1 8>&- 9>&- &
	PROFILER=$!
	STARTED+=("$PROFILER")
	wait_for floor.out '^ready' "$PROFILER"
}

run_floor() {
	start_pair
	start_floor
	finish_pair >result
	stop_profiler
	cat result
}

# Programs and their counters, as `ID NAME COUNT NS` lines.
bpf_run_times() {
	bpftool -j prog show |
		jq -r '.[] | select(.run_cnt != null) | "\(.id) \(.name) \(.run_cnt) \(.run_time_ns)"' >run_times
}

# print_run_times START: of the programs that START brings. Counting takes time itself, which the
# empty programs of the floor show.
print_run_times() {
	sysctl -qw kernel.bpf_stats_enabled=1
	bpf_run_times
	mv run_times others
	start_pair
	"$1"
	finish_pair bpf_run_times >result
	stop_profiler
	sysctl -qw "kernel.bpf_stats_enabled=$STATS_BEFORE"
	# The two that run at every call, not the tracepoints.
	awk 'FILENAME == "others" { other[$1]; next }
		!($1 in other) && $3 > 10000 {
			printf "  %-26s %12d runs %8.1f ns each\n", $2, $3, $4 / $3
			runs += $3
			ns += $4
		}
		END { if (runs) printf "  %-26s %12d runs %8.1f ns each\n", "both", runs, ns / runs }' \
		others run_times
}

DEFAULT='heaptap, default rate'
FLOOR='two empty probes (floor)'

# name | needs | own unprofiled row, if not that of glibc | command
ROWS=(
	"unprofiled|||run_pair"
	"$DEFAULT|$HEAPTAP||run_heaptap"
	"$FLOOR|$HEAPTAP||run_floor"
	"heaptap, exact|$HEAPTAP||run_heaptap --sample-bytes 1"
	"tcmalloc, unprofiled|$TCMALLOC||run_pair LD_PRELOAD=$TCMALLOC"
	"gperftools HEAPPROFILE|$TCMALLOC|tcmalloc, unprofiled|run_pair LD_PRELOAD=$TCMALLOC HEAPPROFILE=$WORK/gperf"
	"gperftools sampling 524288|$TCMALLOC|tcmalloc, unprofiled|run_pair LD_PRELOAD=$TCMALLOC TCMALLOC_SAMPLE_PARAMETER=524288"
	"jemalloc, unprofiled|$JEMALLOC||run_pair LD_PRELOAD=$JEMALLOC"
	"jemalloc prof:true|$JEMALLOC|jemalloc, unprofiled|run_pair LD_PRELOAD=$JEMALLOC MALLOC_CONF=prof:true,prof_active:true"
	"heaptrack|$(command -v heaptrack || echo /usr/bin/heaptrack)||run_heaptrack"
)

declare -A WALL CPU WHY

measure() {
	local row name needs own command wall cpu

	for row in "${ROWS[@]}"; do
		IFS='|' read -r name needs own command <<<"$row"
		if [ -n "$needs" ] && [ ! -e "$needs" ]; then
			WHY[$name]="not installed"
			continue
		fi
		read -ra command <<<"$command"
		"${command[@]}" >row.result || true
		read -r wall cpu < <(tail -n 1 row.result) || true
		if [ -z "$cpu" ]; then
			WHY[$name]="failed"
			continue
		fi
		WALL[$name]=$(least "$wall" "${WALL[$name]:-}")
		CPU[$name]=$(least "$cpu" "${CPU[$name]:-}")
	done
}

least() {
	printf '%s\n' "$@" | grep . | sort -n | head -n 1
}

# ratio A B: of two times, or a dash.
ratio() {
	awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (a && b) printf "%.2f", a / b; else printf "-" }'
}

for ((round = 1; round <= ROUNDS; round++)); do
	[ ! -t 2 ] || printf '\rround %d of %d' "$round" "$ROUNDS" >&2
	measure
done
[ ! -t 2 ] || printf '\r\033[K' >&2

printf '%s, %s CPUs, Linux %s; %s rounds of %s s\n\n' \
	"$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(uname -r)" \
	"$ROUNDS" "$SECONDS_PER_ROW"
printf '%-28s %12s %12s %12s %12s\n' '' 'ns per pair' 'to glibc' 'to its own' 'ns of CPU'
for row in "${ROWS[@]}"; do
	IFS='|' read -r name _ own _ <<<"$row"
	if [ -z "${WALL[$name]:-}" ]; then
		printf '%-28s %12s\n' "$name" "${WHY[$name]}"
		continue
	fi
	printf '%-28s %12s %12s %12s %12s\n' "$name" "${WALL[$name]}" \
		"$(ratio "${WALL[$name]}" "${WALL[unprofiled]:-}")" \
		"$(if [ -n "$own" ]; then ratio "${WALL[$name]}" "${WALL[$own]:-}"; fi)" "${CPU[$name]}"
done
if [ -n "${CPU[$FLOOR]:-}" ]; then
	printf '\nThe floor is attached as %s. heaptap at the default rate costs %s of its CPU time.\n' \
		"$(head -n 1 floor.out)" "$(ratio "${CPU[$DEFAULT]:-}" "${CPU[$FLOOR]}")"
fi
if [ -x "$HEAPTAP" ] && command -v bpftool jq >/dev/null; then
	printf '\nBPF run time of heaptap at the default rate:\n'
	print_run_times start_heaptap
	printf 'of the empty programs, which is what the counting itself adds:\n'
	print_run_times start_floor
fi
