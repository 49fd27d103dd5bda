#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What each mode of `heaptap record` costs a program: its CPU time with a profiler to that without,
# which run by turns; the median of the ratios counts. The loads: malloc and free; redis-server under
# redis-benchmark; and the first touch of pages, one after the other, which is the most that page faults
# can cost. A mode that hears of the whole machine's costs other processes too: `beside` is the program
# when another one is profiled.
#
# BUILD, TURNS (of 5 ms) and ROUNDS (of redis) come from the environment.
set -euo pipefail

TURNS=${TURNS:-300}
ROUNDS=${ROUNDS:-15}
REQUESTS=${REQUESTS:-20000}
# shellcheck source-path=SCRIPTDIR source=ring.bash
source "$(dirname "$0")/ring.bash"
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

# name | options of record | limit of the ratio for malloc and free, and for redis; or none
MODES=(
	"heap|--mode heap|"
	"growth|--mode growth|1.03"
	"mmap-only|--mmap-only|"
	"faults|--mode faults|1.03"
)
LIBRARY=libc.so.6
OPTION=

names() {
	printf '%s\n' "${MODES[@]%%|*}"
}

# options_of NAME / limit_of NAME
options_of() {
	printf '%s\n' "${MODES[@]}" | awk -F '|' -v name="$1" '$1 == name { print $2 }'
}

limit_of() {
	printf '%s\n' "${MODES[@]}" | awk -F '|' -v name="$1" '$1 == name { print $3 }'
}

# show LOAD UNIT [limits]: a line for the unprofiled program, and one for each mode.
show() {
	local name limit ratio note

	printf '%-24s %10.0f %s\n' "$1, unprofiled" "$(median unprofiled)" "$2"
	while read -r name; do
		ratio=$(median "$name" unprofiled)
		limit=$(limit_of "$name")
		note=
		if [ -n "$limit" ] && [ -n "${3:-}" ]; then
			note="limit $limit, held"
			awk -v ratio="$ratio" -v limit="$limit" 'BEGIN { exit ratio > limit }' ||
				note="limit $limit, NOT HELD"
		fi
		printf '  %-22s %10.3f times as much  %s\n' "$name" "$ratio" "$note"
	done < <(names)
}

# measure_ring LOAD OPTION UNIT [limits]
measure_ring() {
	local columns name options

	OPTION=$2
	mapfile -t columns < <(names)
	start_ring unprofiled "${columns[@]}"
	for name in "${columns[@]}"; do
		read -ra options < <(options_of "$name")
		profile "$name" start_heaptap "${options[@]}"
	done
	run_ring unprofiled "${columns[@]}"
	show "$1" "$3" "${4:-}"
}

# start_server NAME: a redis-server of its own, with nothing else to do; sets TARGET.
start_server() {
	mkdir -p "$1"
	: >"$1/redis.log"
	redis-server --port 0 --unixsocket "$WORK/$1/redis.sock" --save '' --appendonly no \
		--dir "$WORK/$1" >"$1/redis.log" 2>&1 8>&- &
	TARGET=$!
	STARTED+=("$TARGET")
	wait_for "$1/redis.log" 'ready to accept|Ready to accept|accept connections' "$TARGET"
}

# cpu_ns PID: of its first thread, which serves the requests.
cpu_ns() {
	awk '{ print $1 }' "/proc/$1/task/$1/schedstat"
}

# One turn of every server: ns of CPU per request.
serve() {
	local name before after

	for name in unprofiled "${COLUMNS[@]}"; do
		before=$(cpu_ns "${MEMBERS[$name]}")
		redis-benchmark -s "$WORK/$name/redis.sock" -q -n "$REQUESTS" -c 10 -r 1000000 -d 200 \
			-t set,lpush >redis.out
		after=$(cpu_ns "${MEMBERS[$name]}")
		echo $(((after - before) / (2 * REQUESTS))) >>"$name/out"
	done
}

measure_redis() {
	local name options

	mapfile -t COLUMNS < <(names)
	for name in unprofiled "${COLUMNS[@]}"; do
		start_server "$name"
		MEMBERS[$name]=$TARGET
		: >"$name/out"
	done
	for name in "${COLUMNS[@]}"; do
		read -ra options < <(options_of "$name")
		profile "$name" start_heaptap "${options[@]}"
	done
	rounds serve
	for PROFILER in "${PROFILERS[@]}"; do
		stop_profiler
	done
	PROFILERS=()
	show 'redis-server' 'ns of CPU per request' limits
	for name in unprofiled "${COLUMNS[@]}"; do
		kill "${MEMBERS[$name]}"
		wait "${MEMBERS[$name]}" || true
	done
}

# touch_pages NAME [OPTION...]: one turn of a program that only touches pages, profiled if there are options;
# of `beside` another process is.
touch_pages() {
	local name=$1
	shift

	if [ "$name" = beside ]; then
		sleep 1000 8>&- &
		TARGET=$!
		STARTED+=("$TARGET")
		start_heaptap "$@"
		kill_later=$TARGET
		start_target "$BENCH/pair" --wait --pages 0.3
	else
		start_target "$BENCH/pair" --wait --pages 0.3
		[ $# -eq 0 ] || start_heaptap "$@"
	fi
	run_target '^[0-9.]+ ns per pair'
	[ $# -eq 0 ] || stop_profiler
	[ -z "${kill_later:-}" ] || kill "$kill_later"
	kill_later=
	sed -nE 's/.*, ([0-9.]+) of CPU$/\1/p' target.out >>"$name/out"
}

touch_all() {
	local name options

	touch_pages unprofiled
	for name in "${COLUMNS[@]}"; do
		read -ra options < <(options_of "$name")
		touch_pages "$name" "${options[@]}"
	done
	read -ra options < <(options_of faults)
	touch_pages beside "${options[@]}"
}

measure_pages() {
	local name

	mapfile -t COLUMNS < <(names)
	for name in unprofiled "${COLUMNS[@]}" beside; do
		mkdir -p "$name"
		: >"$name/out"
	done
	rounds touch_all
	show 'first touch of a page' 'ns of CPU per page'
	printf '  %-22s %10.3f times as much\n' 'beside faults' "$(median beside unprofiled)"
}

printf '%s; medians of %s turns of 5 ms, and of %s rounds of %s requests\n\n' "$(machine)" "$TURNS" \
	"$ROUNDS" "$((2 * REQUESTS))"
measure_ring 'malloc and free' '' 'ns of CPU per pair' limits
if command -v redis-server >/dev/null; then
	measure_redis
else
	echo 'redis-server: not installed'
fi
measure_pages
