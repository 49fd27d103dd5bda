#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What profiling costs by allocator: ns of CPU per malloc+free pair and per pair of operator new and
# sized delete. The floor is two empty programs at the instructions that heaptap has chosen itself;
# with --plain-entries its probes sit on the functions' first instructions.
#
# A CPU's speed changes all the time, by half and more where others use the same core. So all rows of
# an allocator run at once, on one CPU, by turns of 5 ms. Their ratios are taken turn by turn, and the
# median counts. Each has a copy of the allocator's library, as probes belong to a file.
#
# BUILD and TURNS come from the environment.
set -euo pipefail

TURNS=${TURNS:-300}
LIMIT=1.10 # of heaptap at the default rate to the floor
# shellcheck source-path=SCRIPTDIR source=ring.bash
source "$(dirname "$0")/ring.bash"
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

TCMALLOC=libtcmalloc.so.4

# name | library | option of pair | the functions in which its two calls end up
CASES=(
	"glibc|libc.so.6||malloc free"
	"tcmalloc|$TCMALLOC||malloc free"
	"jemalloc|libjemalloc.so.2||malloc free"
	"mimalloc|libmimalloc.so.2||malloc free"
	"glibc, C++|libc.so.6|--new|malloc free"
	"tcmalloc, C++|$TCMALLOC|--new|_Znwm tc_free_sized"
	"jemalloc, C++|libjemalloc.so.2|--new|_Znwm _ZdlPvm"
	"mimalloc, C++|libmimalloc.so.2|--new|_Znwm free"
)
COLUMNS=(unprofiled floor heaptap plain)

POINTS=()
BROKEN=

# find_points FUNCTION FUNCTION: heaptap's own, in the library that the floor's member uses.
find_points() {
	local file function point

	file=$(copy_of heaptap)
	for function in "$@"; do
		point=$(probe_point "$file" "$function")
		echo "$(copy_of floor):${point##*:}"
		echo "$function at ${point##*:}" >>points
	done
}

measure_case() {
	local name=$1 functions floor_points ratio
	read -ra functions <<<"$2"

	start_ring "${COLUMNS[@]}"
	profile heaptap start_heaptap
	: >points
	find_points "${functions[@]}" >floor_points
	POINTS+=("$name: $(paste -sd, points | sed 's/,/, /')")
	mapfile -t floor_points <floor_points
	profile floor start_floor "${floor_points[@]}"
	profile plain start_heaptap --plain-entries
	run_ring "${COLUMNS[@]}"
	ratio=$(median heaptap floor)
	printf '%-16s %10.1f %10.0f %10.0f %10.0f %14.2f %14.1f\n' "$name" "$(median unprofiled)" \
		"$(median floor)" "$(median heaptap)" "$(median plain)" "$ratio" "$(median plain heaptap)"
	awk -v ratio="$ratio" -v limit="$LIMIT" 'BEGIN { exit ratio > limit }' ||
		BROKEN="$BROKEN${BROKEN:+; }$name"
}

measure_throw() {
	start_ring unprofiled heaptap
	profile heaptap start_heaptap
	run_ring unprofiled heaptap
	printf '\nThrow and catch under tcmalloc: %.0f ns of CPU unprofiled, %.0f with heaptap\n' \
		"$(median unprofiled)" "$(median heaptap)"
}

printf '%s; %s turns of 5 ms\n\n' "$(machine)" "$TURNS"
printf '%-16s %10s %10s %10s %10s %14s %14s\n' 'ns of CPU' "${COLUMNS[@]}" 'heaptap/floor' 'plain/heaptap'
for row in "${CASES[@]}"; do
	IFS='|' read -r name LIBRARY OPTION functions <<<"$row"
	if [ -e "$LIBS/$LIBRARY" ]; then
		measure_case "$name" "$functions"
	else
		printf '%-16s %10s\n' "$name" 'not installed'
	fi
done
printf '\nAt most %s times the floor: %s\n' "$LIMIT" "${BROKEN:+not held by }${BROKEN:-held}"
printf 'Probes, the floor attached as %s:\n' "$FLOOR_MODE"
printf '  %s\n' "${POINTS[@]}"
LIBRARY=$TCMALLOC
OPTION=--throw
[ ! -e "$LIBS/$LIBRARY" ] || measure_throw
