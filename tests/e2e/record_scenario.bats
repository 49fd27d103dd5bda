#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The scenario of gperftools' manual, with its figures; see tests/workloads/nine.c.

load helpers

expected_reasons() {
	cat <<-END
		1024 MB allocated cumulatively, 1024 MB currently in use
		2048 MB allocated cumulatively, 2048 MB currently in use
		3073 MB allocated cumulatively, 3072 MB currently in use
		4097 MB allocated cumulatively, 4096 MB currently in use
		5122 MB allocated cumulatively, 5120 MB currently in use
		6146 MB allocated cumulatively, 6144 MB currently in use
		7171 MB allocated cumulatively, 7168 MB currently in use
		8195 MB allocated cumulatively, 8192 MB currently in use
		Exiting, 4096 MB in use
	END
}

@test "nine snapshots with exact figures and reasons" {
	"$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/nine" >truth 2>log
	grep -qx 'Starting tracking the heap' log
	diff <(expected_reasons) <(reasons log)
	[ "$(count_snapshots p)" -eq 9 ]
	for i in 1 2 3 4 5 6 7 8 9; do
		grep -q "^Dumping heap profile to p\\.000$i\\.pb\\.gz (" log
		[ -s "p.000$i.pb.gz" ]
	done
	# Nothing else is left behind.
	[ "$(find . -name 'p*' | wc -l)" -eq 9 ]
	matches_truth truth p.0009.pb.gz
}

@test "pprof sees the same heap" {
	"$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/nine" >truth 2>log
	[ "$(pprof -top -unit=MB p.0001.pb.gz | row create)" = "1024MB 1024MB" ]
	[ "$(pprof -top -unit=MB p.0002.pb.gz | row create)" = "1024MB 1024MB" ]
	[ "$(pprof -top -unit=MB p.0002.pb.gz | row main)" = "1024MB 2048MB" ]
	[ "$(pprof -top -unit=MB -base p.0008.pb.gz p.0009.pb.gz | row main)" = "-4096MB -4096MB" ]
	[ -z "$(pprof -top -unit=MB -base p.0008.pb.gz p.0009.pb.gz | row create)" ]
	readable "$WORKLOADS/nine" p.*.pb.gz
}

@test "nine snapshots at the default sampling, within one percent" {
	"$HEAPTAP" record -o p -- "$WORKLOADS/nine" >truth 2>log
	[ "$(count_snapshots p)" -eq 9 ]
	[ "$(reasons log | wc -l)" -eq 9 ]
	# 1 MB is about two sample distances: it may weigh 0 or 1.
	paste -d ' ' <(expected_reasons | tr -cd '0-9\n ') <(reasons log | tr -cd '0-9\n ') | awk '
		{
			half = NF / 2
			for (i = 1; i <= half; i++)
				if (($i - $(i + half)) ^ 2 > ($i / 100) ^ 2) {
					print "line " NR ": " $i " became " $(i + half)
					wrong = 1
				}
		}
		END { exit wrong || NR != 9 }'
}

@test "the same when attached by PID before the first allocation" {
	spawn nine "$WORKLOADS/nine" --wait
	wait_for_line nine.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 -o p
	tell nine go
	wait_for_line nine.out '^site='
	tell nine end
	wait_exit "$PID"
	diff <(expected_reasons) <(reasons heaptap.err)
}
