#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# TAP: every chosen probe point is executed once by each call, with the arguments in the registers
# that are named: counted by the kernel's own uprobes, for allocators in many shapes from two
# compilers and for those of this machine. Points that are the entry itself because it is as good as
# any are left out, and of code that several options gave one is taken. --all takes them too, and
# more options.
# Usage: placement.t [--all]; root.
set -u

all=
[ "${1:-}" != --all ] || all=1
here=$(cd "$(dirname "$0")/../.." && pwd)
oracle=${BUILD:-$here/build}/oracle
libraries=/usr/lib/x86_64-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
failed=0

# result DESCRIPTION CONDITION...
result()
{
	local description=$1

	shift
	number=$((number + 1))
	if [ "$@" ]; then
		echo "ok $number - $description"
	else
		echo "not ok $number - $description"
		failed=1
	fi
}

skip()
{
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# compare NAMES EXPECTED GOT: lines of each belong together. Prints those that differ, then
# "checked=N hits=N". A point of a free may leave NULL out, but then for all calls.
compare()
{
	paste -d ' ' "$1" "$2" "$3" | tr '=' ' ' | awk -v judged_mix="$4" '
		# name kind point hits H nonzero N sums S [mix M nonzero_mix N] hits H ...
		{
			second = judged_mix ? 14 : 10
			checked++
			hits += $(second + 1)
			if ($5 > 0 && $(second + 1) == $5 && $(second + 5) == $9 &&
			    (!judged_mix || $(second + 7) == $11))
				next
			if ($2 == "free" && $7 > 0 && $(second + 1) == $7 && $(second + 5) == $9 &&
			    (!judged_mix || $(second + 7) == $13)) {
				without_null++
				next
			}
			print "differs: " $0
		}
		END { print "checked=" checked + 0 " hits=" hits + 0 " without_null=" without_null + 0 }'
}

build()
{
	local compiler=$1 options=$2 name

	name=$compiler$(tr -d ' ' <<<"$options")
	# shellcheck disable=SC2086
	"$compiler" -w -fPIC -shared $options -o "$work/$name.so" \
		"$here/tests/fixtures/allocator.c" 2>"$work/$name.log" || rm -f "$work/$name.so"
}

build_all()
{
	local compiler level extra extras=('' -fcf-protection=full)

	[ -z "$all" ] || extras+=(-fno-omit-frame-pointer -mno-red-zone -fstack-protector-all
		'-fcf-protection=full -mno-red-zone -fno-omit-frame-pointer' -march=haswell
		-fpatchable-function-entry=5 '-pg -mfentry')
	for compiler in gcc clang; do
		for level in -O0 -O1 -O2 -O3 -Os; do
			for extra in "${extras[@]}"; do
				# One build on each processor.
				while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
					wait -n
				done
				build "$compiler" "$level $extra" &
			done
		done
	done
	wait
}

# Lines of `placements` from stdin: those that are worth a look.
choose()
{
	awk -v all="$all" -v seen_file="$work/seen" '
		BEGIN { while ((getline line < seen_file) > 0) seen[line] = 1 }
		$1 !~ /\./ && (all || $2 != $3 || NF > 7) && (all || !(($1 $7) in seen)) {
			print
			print $1 $7 >> seen_file
		}'
}

check_fixture()
{
	local library=$1

	"$oracle/placements" "$library" | choose >"$work/lines"
	[ -s "$work/lines" ] || return 0
	awk '{ print $3, $5 }' "$work/lines" |
		"$oracle/hits" "$library" "$oracle/calls" "$library" "$work/lines" "$work/truth" \
			>"$work/hits" 2>"$work/errors"
	sed 's/^/error: /' "$work/errors"
	awk '{ print $1, $6, $3 }' "$work/lines" >"$work/names"
	compare "$work/names" "$work/truth" "$work/hits" ''
}

# sum NAME FILE
sum()
{
	grep -o "\\b$1=[0-9]*" "$2" | awk -F = '{ n += $2 } END { print n + 0 }'
}

check_fixtures()
{
	local compiler library

	for compiler in gcc clang; do
		: >"$work/seen"
		for library in "$work/$compiler"*.so; do
			check_fixture "$library" | sed "s|^differs: |&${library##*/} |"
		done >"$work/report-$compiler"
		grep -E '^(differs|error): ' "$work/report-$compiler" | sed 's/^/# /'
		result "$compiler: $(sum checked "$work/report-$compiler") points are hit once by each call" \
			"$(sum checked "$work/report-$compiler")" -gt 50 -a \
			"$(grep -cE '^(differs|error): ' "$work/report-$compiler")" = 0
		echo "# hits=$(sum hits "$work/report-$compiler")" \
			"without_null=$(sum without_null "$work/report-$compiler")"
	done
}

# check_library NAME FILE COMMAND...: against a probe at the function's entry.
check_library()
{
	local name=$1 library=$2

	shift 2
	if [ ! -r "$library" ]; then
		skip "$name" "$library is not installed"
		return
	fi
	"$oracle/placements" "$library" | grep -v '^[^ ]*\.' >"$work/functions"
	# Of aliases the first.
	awk -v all="$all" '(all || $2 != $3 || NF > 7) && !seen[$2 $4]++' "$work/functions" >"$work/lines"
	awk '{ print $2, $4; print $3, $5 }' "$work/lines" |
		"$oracle/hits" "$library" "$@" "$work/functions" "$work/truth" >"$work/hits" \
			2>"$work/errors"
	sed 's/^/error: /' "$work/errors" >"$work/report"
	awk '{ print $1, $6, $3 }' "$work/lines" >"$work/names"
	awk 'NR % 2' "$work/hits" >"$work/entries"
	awk 'NR % 2 == 0' "$work/hits" >"$work/points"
	compare "$work/names" "$work/entries" "$work/points" mix >>"$work/report"
	grep -E '^(differs|error): ' "$work/report" | sed 's/^/# /'
	result "$name: $(sum checked "$work/report") points are hit as often as the entry" \
		"$(sum checked "$work/report")" = "$(wc -l <"$work/lines")" -a \
		"$(grep -cE '^(differs|error): ' "$work/report")" = 0
	echo "# hits=$(sum hits "$work/report") without_null=$(sum without_null "$work/report")"
}

check_preloaded()
{
	check_library "$1" "$2" env LD_PRELOAD="$2" "$oracle/calls" -
}

if [ "$(id -u)" != 0 ]; then
	echo "1..0 # SKIP root is needed for uprobes"
	exit 0
fi
build_all
check_fixtures
check_library glibc $libraries/libc.so.6 "$oracle/calls" -
check_preloaded tcmalloc $libraries/libtcmalloc.so.4
check_preloaded tcmalloc_minimal $libraries/libtcmalloc_minimal.so.4
check_preloaded jemalloc $libraries/libjemalloc.so.2
check_preloaded mimalloc $libraries/libmimalloc.so.2
for scudo in /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-x86_64.so; do
	[ -z "$all" ] || check_preloaded scudo "$scudo"
	break
done
if musl-gcc -O1 -o "$work/calls-musl" "$here/tests/oracle/calls.c" 2>/dev/null; then
	check_library musl /lib/ld-musl-x86_64.so.1 "$work/calls-musl" -
else
	skip musl "no musl-gcc"
fi
echo "1..$number"
exit $failed
