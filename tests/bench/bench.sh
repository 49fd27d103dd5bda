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

ROUNDS=${ROUNDS:-3}
SECONDS_PER_ROW=${SECONDS_PER_ROW:-2}
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

LIBC=$(realpath "$LIBS/libc.so.6")
TCMALLOC=$LIBS/libtcmalloc.so.4
JEMALLOC=$LIBS/libjemalloc.so.2

# start_pair: the program `pair`, which waits.
start_pair() {
	start_target "$BENCH/pair" --wait "$SECONDS_PER_ROW"
}

# finish_pair: lets it run, and prints ns per pair and of CPU.
finish_pair() {
	run_target ' of CPU$'
	pair_result <target.out
}

# finish_under START...: the waiting pair, beneath the profiler that this starts.
finish_under() {
	"$@" || {
		kill "$TARGET"
		return 1
	}
	finish_pair >result
	stop_profiler
	cat result
}

pair_result() {
	sed -n 's/ ns per pair, \(.*\) of CPU$/ \1/p'
}

# Plain runs, in an environment of their own: run_pair ASSIGNMENT...
run_pair() {
	env "$@" "$BENCH/pair" "$SECONDS_PER_ROW" 2>/dev/null | pair_result
}

run_heaptrack() {
	heaptrack -r -o "$WORK/heaptrack" "$BENCH/pair" "$SECONDS_PER_ROW" 2>/dev/null | pair_result
}

run_heaptap() {
	start_pair
	finish_under start_heaptap "$@"
}

# Where heaptap has just had its probes.
start_libc_floor() {
	local points

	read -ra points <<<"${FLOOR_POINTS:-$(probe_point "$LIBC" malloc) $(probe_point "$LIBC" free)}"
	start_floor "${points[@]}"
}

run_floor() {
	start_pair
	finish_under start_libc_floor
}

# Programs and their counters, as `ID NAME COUNT NS` lines.
bpf_run_times() {
	bpftool -j prog show |
		jq -r '.[] | select(.run_cnt != null) | "\(.id) \(.name) \(.run_cnt) \(.run_time_ns)"' >run_times
}

# print_run_times START: of the programs that START brings. Counting takes time itself, which the
# empty programs of the floor show.
print_run_times() {
	start_stats
	bpf_run_times
	mv run_times others
	start_pair
	"$1"
	run_target ' of CPU$' bpf_run_times
	stop_profiler
	restore_stats
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

rounds measure
printf '%s; %s rounds of %s s\n\n' "$(machine)" "$ROUNDS" "$SECONDS_PER_ROW"
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
		"$FLOOR_MODE" "$(ratio "${CPU[$DEFAULT]:-}" "${CPU[$FLOOR]}")"
fi
if [ -x "$HEAPTAP" ] && command -v bpftool jq >/dev/null; then
	printf '\nBPF run time of heaptap at the default rate:\n'
	print_run_times start_heaptap
	printf 'of the empty programs, which is what the counting itself adds:\n'
	print_run_times start_libc_floor
fi
