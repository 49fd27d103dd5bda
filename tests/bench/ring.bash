# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# A ring of pairs that run by turns of 5 ms on one CPU: what they cost beside each other, however fast
# that CPU is at the moment. Each has a copy of the allocator's library, as probes belong to a file.
#
# To be sourced before common.bash, which changes the folder. LIBRARY, OPTION (of pair, or empty) and
# TURNS are the caller's.

CPU=$(($(nproc) - 1))
declare -A MEMBERS
PROFILERS=()

copy_of() {
	echo "$WORK/$1/$LIBRARY"
}

# start_ring COLUMN...: for each a waiting pair with a copy of LIBRARY; the turn goes from each to the
# next, and from the last to the first.
start_ring() {
	local fds=() column fd i

	for column in "$@"; do
		mkdir -p "$column"
		cp -L "$LIBS/$LIBRARY" "$column"
		rm -f "$column/turn"
		mkfifo "$column/turn"
		exec {fd}<>"$column/turn"
		fds+=("$fd")
	done
	for ((i = 1; i <= $#; i++)); do
		column=${!i}
		: >"$column/out"
		taskset -c "$CPU" env LD_PRELOAD="$(copy_of "$column")" \
			"$BENCH/pair" ${OPTION:+"$OPTION"} --turns "$TURNS" \
			<&"${fds[i - 1]}" 3>&"${fds[i % $#]}" >"$column/out" &
		MEMBERS[$column]=$!
		STARTED+=("$!")
		wait_for "$column/out" '^ready' "$!"
	done
	for fd in "${fds[@]}"; do
		exec {fd}>&-
	done
}

# profile COLUMN START...: puts the profiler that this starts on a member of the ring.
profile() {
	TARGET=${MEMBERS[$1]}
	"${@:2}"
	PROFILERS+=("$PROFILER")
}

# run_ring COLUMN...: the turns, whose results are then one a line in COLUMN/out.
run_ring() {
	local column

	echo -n . >"$1/turn"
	for column in "$@"; do
		wait "${MEMBERS[$column]}"
		sed -i 1d "$column/out"
	done
	for PROFILER in "${PROFILERS[@]}"; do
		stop_profiler
	done
	PROFILERS=()
}

# median COLUMN [COLUMN]: of its turns, or of the ratios of both's.
median() {
	paste "$1/out" ${2:+"$2/out"} | awk '{ print $2 ? $1 / $2 : $1 }' | sort -g |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
