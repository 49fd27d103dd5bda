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

# same_stacks TRUTH SNAPSHOT: every stack as the program says. What is marked as early may be cut,
# with the reason, if it is right as far as it goes.
same_stacks() {
	python3 "$E2E/pprof_stacks.py" "$2" >stacks || return 1
	awk '
		NR == FNR {
			want[$2] = want[$2] $3 "\n"
			early[$2] = $1 ~ /_early$/
			name[$2] = $1
			missing[$2 " " $3] = 1
			next
		}
		!($1 in want) { next }
		{
			stack = $2
			if (early[$1] && sub(/;\[cut:_[^;]*(_not_built_yet|_was_interrupted_between_calls)\]$/, ";", stack))
				found = index("\n" want[$1], "\n" stack)
			else
				found = index("\n" want[$1], "\n" stack "\n")
			delete missing[$1 " " stack]
			if (!found) {
				print name[$1] ": " $2
				print "  not among:\n" want[$1]
				wrong = 1
			}
		}
		END {
			for (key in missing) {
				split(key, part, " ")
				if (early[part[1]])
					continue
				print name[part[1]] " has no stack " part[2]
				wrong = 1
			}
			exit wrong
		}' "$1" stacks
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

# all COMPILER LEVEL: eight builds.
all() {
	local folder
	for folder in "$FOLDER/$1-$2"-{omit,no-omit}; do
		follow "$folder/pie/torture" "$FOLDER/torture_lib.so"
		follow "$folder/no-pie/torture" "$FOLDER/torture_lib.so"
		follow "$folder/static-pie/torture"
		follow "$folder/static/torture"
	done
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
