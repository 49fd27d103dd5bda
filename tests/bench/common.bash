# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What the benchmarks share: a folder that goes away, targets that wait for a profiler, and profilers.
# BUILD comes from the environment. To be sourced first, with `set -euo pipefail`.

BUILD=$(cd "${BUILD:-build}" && pwd)
HEAPTAP=$BUILD/heaptap
BENCH=$BUILD/bench
LIBS=/usr/lib/x86_64-linux-gnu
PATIENCE=60

export PATH=$PATH:/usr/sbin
unset "${!HEAP_PROFILE_@}" TCMALLOC_SAMPLE_PARAMETER MALLOC_CONF

[ "$(id -u)" -eq 0 ] || {
	echo "${0##*/}: needs root to place probes: run it with sudo" >&2
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
	restore_stats
	rm -rf "$WORK"
}

# The kernel's counting of BPF run time.
start_stats() {
	sysctl -qw kernel.bpf_stats_enabled=1
}

restore_stats() {
	sysctl -qw "kernel.bpf_stats_enabled=$STATS_BEFORE"
}

trap cleanup EXIT
cd "$WORK" || exit

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

# start_target COMMAND...: it says `ready` and waits, for a profiler to attach; sets TARGET.
start_target() {
	rm -f target.in
	mkfifo target.in
	exec 8<>target.in
	: >target.out
	"$@" <target.in >target.out 8>&- &
	TARGET=$!
	STARTED+=("$TARGET")
	wait_for target.out '^ready' "$TARGET"
}

# run_target PATTERN [COMMAND]: lets it run until a line matches, then COMMAND while it is still there.
run_target() {
	echo go >&8
	wait_for target.out "$1" "$TARGET"
	"${2:-true}"
	echo end >&8
	wait "$TARGET"
	exec 8>&-
}

# start_heaptap OPTION...: ready, on the waiting target; sets PROFILER and HEAPTAP_LOG.
start_heaptap() {
	HEAPTAP_LOG=$WORK/heaptap.$TARGET.log
	: >"$HEAPTAP_LOG"
	"$HEAPTAP" record -v -p "$TARGET" -o "$WORK/heaptap.$TARGET" "$@" 2>"$HEAPTAP_LOG" >&2 8>&- &
	PROFILER=$!
	STARTED+=("$PROFILER")
	wait_for "$HEAPTAP_LOG" '^Attached to ' "$PROFILER"
}

# An ended target ends its profiler, too.
stop_profiler() {
	kill "$PROFILER" 2>/dev/null || true
	wait "$PROFILER" || true
}

# probe_point FILE FUNCTION: FILE:OFFSET where heaptap put its probe, by its own words.
probe_point() {
	local delta value vaddr offset

	delta=$(awk -v start="Probe point: $1 $2+" \
		'index($0, start) == 1 { print substr($0, length(start) + 1) + 0; exit }' "$HEAPTAP_LOG")
	value=$(readelf -W --dyn-syms "$1" |
		awk -v name="$2" '{ sub(/@.*/, "", $8) } $8 == name && $7 != "UND" { print $2; exit }')
	read -r offset vaddr < <(readelf -Wl "$1" | awk '$1 == "LOAD" && / R E / { print $2, $3; exit }')
	if [ -z "$delta" ] || [ -z "$value" ]; then
		echo "${0##*/}: heaptap has no probe on $2 in $1" >&2
		return 1
	fi
	printf '%s:%#x\n' "$1" $((16#$value + delta - vaddr + offset))
}

# start_floor POINT POINT: two empty programs, on the waiting target; sets PROFILER and FLOOR_MODE.
start_floor() {
	rm -f floor.in
	mkfifo floor.in
	exec 9<>floor.in
	: >floor.out
	"$BENCH/floor" "$TARGET" "$@" <floor.in >floor.out 2>&1 8>&- 9>&- &
	PROFILER=$!
	STARTED+=("$PROFILER")
	wait_for floor.out '^ready' "$PROFILER"
	FLOOR_MODE=$(head -n 1 floor.out)
}

# least NUMBER...: of those that are there.
least() {
	printf '%s\n' "$@" | grep . | sort -g | head -n 1
}

# ratio A B: of two times, or a dash.
ratio() {
	awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (a && b) printf "%.2f", a / b; else printf "-" }'
}

machine() {
	printf '%s, %s CPUs, Linux %s' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" \
		"$(nproc)" "$(uname -r)"
}

# rounds COMMAND: ROUNDS times; a terminal sees how far it is.
rounds() {
	local round

	for ((round = 1; round <= ROUNDS; round++)); do
		[ ! -t 2 ] || printf '\rround %d of %d' "$round" "$ROUNDS" >&2
		"$1"
	done
	[ ! -t 2 ] || printf '\r\033[K' >&2
}
