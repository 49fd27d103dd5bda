#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What profiling costs by allocator: ns of CPU per malloc+free pair and per pair of operator new and
# sized delete. The floor is two empty programs at the instructions that heaptap has chosen itself;
# with --plain-entries its probes sit on the functions' first instructions. As in bench.sh the fastest
# of several rounds counts, and ratios within one run are what to compare.
#
# BUILD, ROUNDS and SECONDS_PER_ROW come from the environment.
set -euo pipefail

ROUNDS=${ROUNDS:-5}
SECONDS_PER_ROW=${SECONDS_PER_ROW:-1}
LIMIT=1.10 # of heaptap at the default rate to the floor
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

TCMALLOC=$LIBS/libtcmalloc.so.4

# name | library | preloaded | option of pair | the functions in which its two calls end up
CASES=(
	"glibc|$LIBS/libc.so.6|no||malloc free"
	"tcmalloc|$TCMALLOC|yes||malloc free"
	"jemalloc|$LIBS/libjemalloc.so.2|yes||malloc free"
	"mimalloc|$LIBS/libmimalloc.so.2|yes||malloc free"
	"glibc, C++|$LIBS/libc.so.6|no|--new|malloc free"
	"tcmalloc, C++|$TCMALLOC|yes|--new|_Znwm tc_free_sized"
	"jemalloc, C++|$LIBS/libjemalloc.so.2|yes|--new|_Znwm _ZdlPvm"
	"mimalloc, C++|$LIBS/libmimalloc.so.2|yes|--new|_Znwm free"
)

declare -A NS POINTS

# note KEY COMMAND...: the fastest CPU time so far of what the command prints.
note() {
	local key=$1 cpu
	shift

	"$@" >row.result || return
	read -r _ cpu <row.result || return
	NS[$key]=$(least "$cpu" "${NS[$key]:-}")
}

# find_points LIBRARY FUNCTION FUNCTION: of the two calls, by what heaptap has just said.
find_points() {
	local file

	file=$(realpath "$1")
	probe_point "$file" "$2" && probe_point "$file" "$3"
}

measure_case() {
	local name=$1 library=$2 preload=$3 option=$4 functions=$5 points
	read -ra functions <<<"$functions"
	read -ra option <<<"$option"

	start_pair "$preload" "${option[@]}"
	note "$name unprofiled" finish_pair
	start_pair "$preload" "${option[@]}"
	note "$name heaptap" finish_under start_heaptap
	find_points "$library" "${functions[@]}" >points
	mapfile -t points <points
	POINTS[$name]="${points[*]}"
	start_pair "$preload" "${option[@]}"
	note "$name floor" finish_under start_floor "${points[@]}"
	start_pair "$preload" "${option[@]}"
	note "$name plain" finish_under start_heaptap --plain-entries
}

measure_throw() {
	start_pair "$TCMALLOC" --throw
	note "throw unprofiled" finish_pair
	start_pair "$TCMALLOC" --throw
	note "throw heaptap" finish_under start_heaptap
}

measure() {
	local row name library preloaded option functions

	for row in "${CASES[@]}"; do
		IFS='|' read -r name library preloaded option functions <<<"$row"
		[ -e "$library" ] || continue
		[ "$preloaded" = yes ] && preloaded=$library || preloaded=
		measure_case "$name" "$library" "$preloaded" "$option" "$functions" || true
	done
	[ ! -e "$TCMALLOC" ] || measure_throw || true
}

# print_case NAME: false if it does not hold the limit.
print_case() {
	local unprofiled=${NS[$1 unprofiled]:-} floor=${NS[$1 floor]:-} heaptap=${NS[$1 heaptap]:-}
	local plain=${NS[$1 plain]:-}

	if [ -z "$floor" ] || [ -z "$heaptap" ]; then
		printf '%-16s %10s\n' "$1" 'not measured'
		return 0
	fi
	printf '%-16s %10s %10s %10s %10s %14s %14s\n' "$1" "$unprofiled" "$floor" "$heaptap" "$plain" \
		"$(ratio "$heaptap" "$floor")" "$(ratio "$plain" "$heaptap")"
	awk -v a="$heaptap" -v b="$floor" -v limit="$LIMIT" 'BEGIN { exit a > limit * b }'
}

rounds measure
machine
printf '\n%-16s %10s %10s %10s %10s %14s %14s\n' 'ns of CPU' 'unprofiled' 'floor' 'heaptap' 'plain' \
	'heaptap/floor' 'plain/heaptap'
broken=
for row in "${CASES[@]}"; do
	name=${row%%|*}
	print_case "$name" || broken="$broken${broken:+; }$name"
done
printf '\nAt most %s times the floor: %s\n' "$LIMIT" "${broken:+not held: }${broken:-held}"
printf 'Probes of heaptap and the floor, which is attached as %s:\n' "${FLOOR_MODE:-nothing}"
for row in "${CASES[@]}"; do
	name=${row%%|*}
	[ -z "${POINTS[$name]:-}" ] || printf '  %-16s %s\n' "$name" "${POINTS[$name]}"
done
[ -z "${NS[throw heaptap]:-}" ] ||
	printf '\nThrow and catch under tcmalloc: %s ns of CPU unprofiled, %s with heaptap\n' \
		"${NS[throw unprofiled]}" "${NS[throw heaptap]}"
