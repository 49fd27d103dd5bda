#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Stacks that are hard to unwind, from a program built in 48 ways, against its own backtrace().

load helpers

SOURCE=$E2E/../workloads/torture.cc

# objects COMPILER FOLDER FLAG...: the compiler's half of a build.
objects() {
	local compiler=$1 to=$2
	shift 2
	mkdir -p "$to"
	"$compiler" -std=gnu++17 -pthread -Wall -Wextra -Werror "$@" -c "$SOURCE" -o "$to/torture.o"
}

# Position-independent and not, dynamic and static: four objects, four programs.
build() {
	local level=$2 pointers=$3 to=$1-$2-$3
	local cxx=g++
	local flags=("-$level" "-f$pointers-frame-pointer")

	[ "$1" = gcc ] || cxx=clang++
	objects $cxx "$to/pie" "${flags[@]}" -fPIE
	objects $cxx "$to/no-pie" "${flags[@]}" -fno-pie
	objects $cxx "$to/static-pie" "${flags[@]}" -fPIE -DTORTURE_STATIC
	objects $cxx "$to/static" "${flags[@]}" -fno-pie -DTORTURE_STATIC
	for kind in pie no-pie static-pie static; do
		$cxx -pthread "-$kind" "$to/$kind/torture.o" -o "$to/$kind/torture"
	done
}

setup_file() {
	export FOLDER=$BATS_FILE_TMPDIR SOURCE
	export -f objects build
	cd "$FOLDER" || return 1
	gcc -O2 -fPIC -shared -Wall -Wextra -Werror -o torture_lib.so \
		"$BATS_TEST_DIRNAME/../fixtures/torture_lib.c"
	printf '%s\n' {gcc,clang}\ {O0,O2,O3}\ {omit,no-omit} |
		xargs -P "$(nproc)" -L 1 bash -euc 'build "$@"' build
}

# The background work of the loader takes an unknown time: more rounds if it was not done.
follow() {
	local program=$1 rounds
	shift
	for rounds in 100 1000; do
		rm -f p.*
		"$HEAPTAP" record --sample-bytes 1 -o p -- "$program" $rounds "$@" >truth 2>log || {
			cat log
			return 1
		}
		[ "$(wc -l <truth)" -gt 100 ] || {
			echo "$program says too little"
			return 1
		}
		same_stacks truth "$(last_snapshot p)" >wrong && return
	done
	echo "$program:"
	cat wrong
	return 1
}

# four FOLDER: its programs, in the current folder.
four() {
	follow "$1/pie/torture" "$FOLDER/torture_lib.so" &&
		follow "$1/no-pie/torture" "$FOLDER/torture_lib.so" &&
		follow "$1/static-pie/torture" &&
		follow "$1/static/torture"
}

# all COMPILER LEVEL: eight builds, two at a time.
all() {
	local pointers pids=() pid failed=0
	for pointers in omit no-omit; do
		mkdir $pointers
		(cd $pointers && four "$FOLDER/$1-$2-$pointers") >$pointers.out 2>&1 3>&- &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do
		wait "$pid" || failed=1
	done
	cat ./*.out
	return $failed
}

# bare COMPILER POINTERS OPTION...: a build whose unwind tables are taken out. The code is the same,
# so the intact program knows the stacks; but a signal may come anywhere.
bare() {
	local intact=$FOLDER/$1-O2-$2/no-pie/torture
	shift 2
	rm -f p.*
	mkdir -p bare
	objcopy --remove-section .eh_frame --remove-section .eh_frame_hdr "$@" "$intact" bare/torture
	"$intact" 1 "$FOLDER/torture_lib.so" | grep -v '^busy' >truth
	"$HEAPTAP" record --sample-bytes 1 -o p -- bare/torture 1 "$FOLDER/torture_lib.so" >/dev/null
	same_stacks truth "$(last_snapshot p)" any
	# Not by saying nothing.
	[ "$(grep -c '^300.*torture' stacks)" -ge 20 ]
}

@test "gcc -O0" {
	all gcc O0
}

@test "gcc -O2" {
	all gcc O2
}

@test "gcc -O3" {
	all gcc O3
}

@test "clang -O0" {
	all clang O0
}

@test "clang -O2" {
	all clang O2
}

@test "clang -O3" {
	all clang O3
}

@test "no tables: what the code tells is right, the rest is cut" {
	for compiler in gcc clang; do
		for pointers in omit no-omit; do
			bare $compiler $pointers
			# Some frame only tables can describe; the library's own are built later.
			awk '
				NR == FNR { name[$2] = $1; next }
				$1 in name && name[$1] !~ /^(overaligned|library_early)$/ && /\[cut:/ {
					print name[$1], $2
					found = 1
				}
				END { exit found }' truth stacks
		done
	done
}

@test "no tables and no symbols: no stack is complete and wrong" {
	for compiler in gcc clang; do
		for pointers in omit no-omit; do
			bare $compiler $pointers --strip-all
			grep -q '^300.*;\[cut:' stacks
		done
	done
}
