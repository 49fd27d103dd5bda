#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# `heaptap report` on files by heaptap and by Go programs, judged by pprof.

load helpers

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return 1
	"$HEAPTAP" record --sample-bytes 1 -o nine -- \
		"$WORKLOADS/nine" >nine.truth 2>nine.log
	cat >heap.go <<-'END'
		package main

		import (
			"os"
			"runtime"
			"runtime/pprof"
		)

		var kept [][]byte

		//go:noinline
		func keepBlocks(n int) {
			for i := 0; i < n; i++ {
				kept = append(kept, make([]byte, 100000))
			}
		}

		func main() {
			runtime.MemProfileRate = 1
			keepBlocks(50)
			runtime.GC()
			first, _ := os.Create("go.0001.pb.gz")
			pprof.WriteHeapProfile(first)
			first.Close()
			keepBlocks(30)
			for i := 0; i < 40; i++ {
				kept[i] = nil
			}
			runtime.GC()
			runtime.GC()
			second, _ := os.Create("go.0002.pb.gz")
			pprof.WriteHeapProfile(second)
			second.Close()
		}
	END
	GO111MODULE=off GOCACHE=$BATS_FILE_TMPDIR/gocache go build -o heap heap.go
	./heap
}

@test "the table of a snapshot" {
	"$HEAPTAP" report --text "$BATS_FILE_TMPDIR/nine.0002.pb.gz" >table
	grep -q 'Total:' table
	awk '/ create$/ { found = 1; if ($2 != "50.0%" && $2 != "50%" && $2 != "50.00%") exit 1 } END { exit !found }' table
	awk '/ main$/ { found = 1; if ($5 !~ /^100/) exit 1 } END { exit !found }' table
	# The table is what comes without an option.
	diff table <("$HEAPTAP" report "$BATS_FILE_TMPDIR/nine.0002.pb.gz")
}

@test "folded stacks, root first, for every sample type" {
	local gib=$((1 << 30)) mib=$((1 << 20))
	file=$BATS_FILE_TMPDIR/nine.0009.pb.gz
	"$HEAPTAP" report --folded "$file" | grep -qE "(^|;)main;create $((4 * gib))\$"
	"$HEAPTAP" report --folded --sample-index inuse_objects "$file" | grep -qE '(^|;)main;create 4$'
	"$HEAPTAP" report --folded --sample-index alloc_space "$file" |
		grep -qE "(^|;)main;create_and_free;create $((4 * mib))\$"
	"$HEAPTAP" report --folded --sample-index alloc_objects "$file" | grep -qE '(^|;)main 4$'
}

@test "a difference, with negative values" {
	base=$BATS_FILE_TMPDIR/nine.0008.pb.gz
	file=$BATS_FILE_TMPDIR/nine.0009.pb.gz
	"$HEAPTAP" report --folded --base "$base" "$file" >folded
	grep -qE "(^|;)main -$((4 << 30))\$" folded
	run ! grep -q ';create ' folded
	"$HEAPTAP" report --text --base "$base" "$file" | grep -E -- '-4(096)?(\.0+)? ?[MG]i?B.* main$'
	"$HEAPTAP" report --folded --base "$file" "$file" >nothing
	run ! grep -q '[1-9]$' nothing
}

@test "the same figures as pprof" {
	for file in nine.0003.pb.gz nine.0009.pb.gz go.0001.pb.gz go.0002.pb.gz; do
		for type in alloc_objects alloc_space inuse_objects inuse_space; do
			pprof -raw "$BATS_FILE_TMPDIR/$file" >raw
			# Samples are lines of four values, a colon and locations.
			column=$(case $type in alloc_objects) echo 1 ;; alloc_space) echo 2 ;;
				inuse_objects) echo 3 ;; *) echo 4 ;; esac)
			total=$(awk -v c="$column" '
				/^Locations$/ { exit }
				/^ *-?[0-9]+ +-?[0-9]+ +-?[0-9]+ +-?[0-9]+:/ { sub(/:.*/, ""); sum += $c }
				END { printf "%.0f\n", sum }' raw)
			ours=$("$HEAPTAP" report --folded --sample-index "$type" "$BATS_FILE_TMPDIR/$file" |
				awk '{ sum += $NF } END { printf "%.0f\n", sum }')
			[ "$total" = "$ours" ] || {
				echo "$file $type: pprof $total, heaptap $ours"
				return 1
			}
		done
	done
}

@test "a profile by a Go program" {
	"$HEAPTAP" report "$BATS_FILE_TMPDIR/go.0001.pb.gz" >table
	grep -q 'Total:' table
	grep -qE ' main\.keepBlocks$' table
	[ "$(by_leaf "$BATS_FILE_TMPDIR/go.0001.pb.gz" alloc_objects |
		awk '$1 == "main.keepBlocks" { print ($2 >= 50) }')" = 1 ]
	# 10 blocks fewer are live in the second.
	"$HEAPTAP" report --folded --base "$BATS_FILE_TMPDIR/go.0001.pb.gz" --sample-index inuse_objects \
		"$BATS_FILE_TMPDIR/go.0002.pb.gz" | grep -qE 'main\.keepBlocks -[0-9]+$'
}

@test "a sample type that the file does not have" {
	run -1 --separate-stderr "$HEAPTAP" report --sample-index nonsense "$BATS_FILE_TMPDIR/nine.0001.pb.gz"
	# shellcheck disable=SC2154 # set by `run --separate-stderr`
	[[ $stderr == *nonsense*inuse_space* ]]
}

@test "report needs neither root nor the target" {
	folder=$(mktemp -d)
	chmod 755 "$folder"
	cp "$HEAPTAP" "$BATS_FILE_TMPDIR/nine.0001.pb.gz" "$folder"
	setpriv --reuid=65534 --regid=65534 --clear-groups "$folder/heaptap" report "$folder/nine.0001.pb.gz" >out
	rm -r "$folder"
	grep -q 'Total:' out
}
