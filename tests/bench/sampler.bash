#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What `record --mode sampler` costs, to a program that does nothing but malloc and free, and to
# redis-server. A CPU's speed is no constant here, so programs are not measured one after the other: a
# profiled and an unprofiled one, each with its own copy of the allocator's library, take turns of 5 ms
# on one CPU, and the median of the turns' ratios counts. One redis-server gets the same load with a
# profiler and without by turns, and its CPU time counts.
#
# Two equal programs differ by some percent, by where their memory happens to lie: each row is measured
# with ROUNDS pairs of processes, and the median of these counts.
#
# Each sample is some traps, and there is one per so many bytes. A loop that does nothing else allocates
# 15 GB per second, so its rows at distances below 16 MiB show what a sample costs; the limit is for the
# other rows.
#
# BUILD, TURNS, ROUNDS, REQUESTS and REDIS_TURNS come from the environment.
set -euo pipefail

TURNS=${TURNS:-100}
ROUNDS=${ROUNDS:-5}
REQUESTS=${REQUESTS:-50000}
REDIS_TURNS=${REDIS_TURNS:-9}
LIMIT=1.03
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

CPU=$(($(nproc) - 1))
LIBRARY=libtcmalloc.so.4
BROKEN=

copy_library() { # COLUMN
	mkdir -p "$1"
	cp -L "$LIBS/$LIBRARY" "$1/$LIBRARY"
}

# start_member COLUMN IN OUT DISTANCE: a pair that waits for its turn on a descriptor and passes it on.
start_member() {
	copy_library "$1"
	env ${4:+TCMALLOC_SAMPLE_PARAMETER="$4"} LD_PRELOAD="$WORK/$1/$LIBRARY" taskset -c "$CPU" \
		"$BENCH/pair" --turns "$TURNS" <&"$2" 3>&"$3" >"$1/out" &
	MEMBER=$!
	STARTED+=("$MEMBER")
	wait_for "$1/out" '^ready' "$MEMBER"
}

# median FILE FILE: of the ratios of their lines.
median() {
	paste "$1" "$2" | awk '{ print $1 / $2 }' | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

median_of() {
	sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# judge NAME LIMIT: from the lines UNPROFILED PROFILED RATIO SAMPLES of `rounds`.
judge() {
	local ratio

	cut -d ' ' -f 3 rounds >ratios
	ratio=$(median_of ratios)
	awk -v name="$1" -v ratio="$ratio" '
		{ unprofiled += $1; profiled += $2; samples += $4 }
		END { printf "%-48s %12.1f %12.1f %9.3f %9.0f\n", name, unprofiled / NR, profiled / NR, ratio, samples / NR }' rounds
	awk -v ratio="$ratio" -v limit="$2" 'BEGIN { exit limit && ratio > limit }' ||
		BROKEN="$BROKEN${BROKEN:+; }$1"
}

samples() {
	zcat "$(find "$WORK" -maxdepth 1 -name "heaptap.$TARGET.*.pb.gz" | sort | tail -n 1)" |
		grep -aoE '[0-9]+ samples' | head -n 1 | cut -d ' ' -f 1
}

# UNPROFILED PROFILED RATIO SAMPLES
summarize() {
	echo "$(median_of unprofiled/out) $(median_of profiled/out) $(median profiled/out unprofiled/out) $(samples)"
}

# measure_loop NAME DISTANCE LIMIT
measure_loop() {
	local round

	: >rounds
	for ((round = 0; round < ROUNDS; round++)); do
		run_loop "$2" >>rounds
	done
	judge "$1" "$3"
}

# run_loop DISTANCE
run_loop() {
	local to from unprofiled

	rm -f to from
	mkfifo to from
	exec {to}<>to {from}<>from
	start_member unprofiled "$to" "$from" "$1"
	unprofiled=$MEMBER
	start_member profiled "$from" "$to" "$1"
	TARGET=$MEMBER
	start_heaptap --mode sampler
	echo -n . >&"$to"
	wait "$unprofiled" "$TARGET"
	stop_profiler
	exec {to}>&- {from}>&-
	sed -i 1d unprofiled/out profiled/out
	summarize
}

# cpu_us PID: of all its threads.
cpu_us() {
	cat "/proc/$1"/task/*/schedstat | awk '{ ns += $1 } END { printf "%.0f\n", ns / 1000 }'
}

start_redis() {
	copy_library server
	: >server/log
	TCMALLOC_SAMPLE_PARAMETER=524288 LD_PRELOAD="$WORK/server/$LIBRARY" redis-server --port 0 \
		--unixsocket "$WORK/server/socket" --save '' --dir "$WORK/server" >server/log &
	TARGET=$!
	STARTED+=("$TARGET")
	wait_for server/log 'ready to accept connections' "$TARGET"
}

# load_redis: prints the CPU time of a turn.
load_redis() {
	local before

	before=$(cpu_us "$TARGET")
	redis-benchmark -s "$WORK/server/socket" -t set,lpush,lpop,sadd -n "$REQUESTS" -r 100000 -d 200 -P 8 \
		-q >/dev/null
	echo $(($(cpu_us "$TARGET") - before))
}

# One server, with a profiler in every second turn: two servers differ by more than the profiler costs.
measure_redis() {
	local turn

	mkdir -p unprofiled profiled
	rm -f unprofiled/* profiled/*
	start_redis
	load_redis >/dev/null
	for ((turn = 0; turn < REDIS_TURNS; turn++)); do
		load_redis >>unprofiled/out
		start_heaptap --mode sampler
		load_redis >>profiled/out
		kill -INT "$PROFILER"
		wait "$PROFILER" || true
	done
	kill "$TARGET"
	wait "$TARGET" || true
	summarize >rounds
	judge 'redis-server, us of CPU per turn, every 512 KiB' "$LIMIT"
}

printf '%s; %s turns in each of %s rounds\n\n' "$(machine)" "$TURNS" "$ROUNDS"
printf '%-48s %12s %12s %9s %9s\n' '' unprofiled profiled ratio samples
measure_loop 'malloc+free, ns per pair, no parameter' '' "$LIMIT"
measure_loop 'malloc+free, ns per pair, every 16 MiB' 16777216 "$LIMIT"
measure_loop 'malloc+free, ns per pair, every 2 MiB' 2097152 ''
measure_loop 'malloc+free, ns per pair, every 512 KiB' 524288 ''
measure_redis
[ -z "$BROKEN" ] || {
	printf '\nAbove %s: %s\n' "$LIMIT" "$BROKEN"
	exit 1
}
