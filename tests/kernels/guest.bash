#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck source-path=SCRIPTDIR/../e2e
#
# The guest's init: prints TAP and powers off. run.bash puts it into an initramfs.
#
# A test is a function that runs with errexit in a folder of its own; what it prints is shown if it
# fails. Tests of what heaptap counts run once for each attach mode that this kernel has.

# --------------------------------------------------------------- the machine

export PATH=/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs -o size=512m tmpfs /tmp
ln -s /proc/self/fd /dev/fd
ip link set lo up
exec </dev/null >/dev/console 2>&1
# Workloads reserve more than there is, and touch little of it.
echo 1 >/proc/sys/vm/overcommit_memory

# What bats would bring.
bats_require_minimum_version() { :; }

cd /heaptap || exit
# shellcheck source=../e2e/helpers.bash
. tests/e2e/helpers.bash
PLAIN_HEAPTAP=$HEAPTAP
# There is no python here.
export STACKS=/heaptap/build/oracle/stacks
# An emulated machine is some thirty times slower.
PATIENCE=150

# -------------------------------------------------------------------- the TAP

count=0

# check NAME COMMAND...: one test; sets FAILED. Its status would be of no use: bash ignores errexit
# in all that is called from a condition.
check() {
	local name=$1 number=$((++count))
	shift
	export BATS_TEST_TMPDIR=/tmp/$number
	mkdir "$BATS_TEST_TMPDIR"
	(
		trap teardown EXIT
		setup
		set -eE
		trap 'echo "line $LINENO: $BASH_COMMAND: status $?"' ERR
		"$@"
	) >"/tmp/$number.out" 2>&1
	FAILED=$?
	if [ "$FAILED" -eq 0 ]; then
		echo "ok $number - $name"
		# What a test wants to be read.
		grep '^# ' "/tmp/$number.out"
		rm -rf "$BATS_TEST_TMPDIR"
	else
		echo "not ok $number - $name"
		tail -n 80 "/tmp/$number.out" | sed 's/^/# /'
	fi
}

# record OPTION...: a whole session, whose output is shown if it fails.
record() {
	timeout 600 "$HEAPTAP" record -o p "$@" >truth 2>log || {
		echo "heaptap record $*: status $?"
		cat log
		return 1
	}
}

# ---------------------------------------------------------- what a kernel has

# at_least VERSION: whether the running kernel is.
at_least() {
	[ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n 1)" = "$1" ]
}

MODES=(perf)
! at_least 6.6 || MODES+=(multi)
! at_least 6.13 || MODES+=(session)

# use_mode MODE: all further sessions use it.
use_mode() {
	MODE=$1
	HEAPTAP=/tmp/heaptap-$MODE
	cat >"$HEAPTAP" <<-END
		#!/bin/bash
		[ "\$1" != record ] || exec $PLAIN_HEAPTAP record --attach $MODE "\${@:2}"
		exec $PLAIN_HEAPTAP "\$@"
	END
	chmod +x "$HEAPTAP"
}

# At syscalls; only when mappings are counted.
MAPPING_PROGRAMS='_(fentry|fexit)$|^(mmap|munmap|mremap|brk|madvise|mprotect)_(enter|exit)$'

FAULT_PROGRAMS='^(fault_enter|fault_minor|fault_major|find_page_table)( |$)'
SAMPLER_PROGRAMS='^sampled_'

# programs_of MODE: a session program stands for an entry and a return program.
programs_of() {
	grep -vE "$MAPPING_PROGRAMS|$FAULT_PROGRAMS|$SAMPLER_PROGRAMS" /heaptap/programs | case $1 in
	session) grep -vE '^(alloc|realloc)_(enter|return)$' ;;
	*) grep -v '_session$' ;;
	esac
}

sampler_programs_of() {
	case $1 in
	session) printf 'sampled_session\nsampled_mark\n' ;;
	*) printf 'sampled_enter\nsampled_return\nsampled_mark\n' ;;
	esac
}

# few_instructions: of `verified` on stdin, that it prints.
few_instructions() {
	local name insns

	while read -r name insns; do
		echo "# $MODE: $name $insns verified instructions"
		[ "$insns" -le "$MAX_VERIFIED" ]
	done
}

# ---------------------------------------------------------------- programs

# The kernel's own limit is a million.
MAX_VERIFIED=50000

# check_verified: of all programs that are loaded; their list is in `programs`.
check_verified() {
	local name insns

	verified >programs
	while read -r name insns; do
		echo "# $MODE: $name $insns verified instructions"
		[ "$insns" -le "$MAX_VERIFIED" ]
	done <programs
}

# test_programs_load [OPTION...]
test_programs_load() {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	# With what has most code.
	attach heaptap "$PID" -v --follow --fork-copy "$@"
	check_verified
	diff <(programs_of "$MODE" | sort) <(awk '{ print $1 }' programs | sort)
	kill -INT "$PID"
	wait_exit "$PID"
	poll "$PATIENCE" no_programs
}

no_programs() {
	[ -z "$(verified)" ]
}

# What a program tells of by USDT probes, and the programs that take it and others' samples.
test_sampler() {
	local profiler

	spawn told "$WORKLOADS/told" --wait 20
	wait_for_line told.out '^ready'
	attach heaptap "$PID" -v --mode sampler -o p
	profiler=$PID
	verified >programs
	few_instructions < <(grep '^sampled_' programs)
	diff <(sampler_programs_of "$MODE" | sort) <(awk '/^sampled_/ { print $1 }' programs | sort)
	tell told ''
	wait_for_line told.out '^site=tell_large'
	kill -INT "$profiler"
	wait_exit "$profiler"
	matches_truth told.out "$(last_snapshot p)"
}

test_best_mode() {
	record -v -- /usr/bin/true
	grep -qx "Attach mode: ${MODES[-1]}" log
}

test_unsupported_mode() {
	local status=0

	"$PLAIN_HEAPTAP" record --attach "$1" -o p -- /usr/bin/true >out 2>log || status=$?
	cat log
	[ "$status" -eq 1 ]
	[ ! -s out ]
	[ "$(wc -l <log)" -eq 1 ]
	grep -q "^heaptap: .*$1" log
	[ "$(count_snapshots p)" -eq 0 ]
	no_programs
}

# ------------------------------------------------------------------ counting

expected_reasons() {
	local n

	# A GiB each time, and a MiB that comes and goes after every second one.
	for n in 1 2 3 4 5 6 7 8; do
		echo "$((1024 * n + (n - 1) / 2)) MB allocated cumulatively," \
			"$((1024 * n)) MB currently in use"
	done
	echo 'Exiting, 4096 MB in use'
}

test_nine() {
	record --sample-bytes 1 -- "$WORKLOADS/nine"
	diff <(expected_reasons) <(reasons log)
	[ "$(count_snapshots p)" -eq 9 ]
	matches_truth truth p.0009.pb.gz
}

test_nine_sampled() {
	record -- "$WORKLOADS/nine"
	[ "$(count_snapshots p)" -eq 9 ]
}

# test_exact WORKLOAD [ARGUMENT...]
test_exact() {
	record --sample-bytes 1 -- "$WORKLOADS/$1" "${@:2}"
	matches_truth truth "$(last_snapshot p)" || {
		cat log
		return 1
	}
}

# sum TYPE: over all samples of the last snapshot.
sum() {
	"$HEAPTAP" report --folded --sample-index "$1" "$(last_snapshot p)" |
		awk '{ sum += $NF } END { printf "%.0f\n", sum }'
}

# What the workload says of its address space, by smaps.
test_mappings() {
	local target

	spawn target "$WORKLOADS/mappings" --wait 20000 4 1
	target=$PID
	wait_for_line target.out '^ready'
	attach heaptap "$target" --mmap-only -o p
	check_verified
	grep -qE "$MAPPING_PROGRAMS" <(awk '{ print $1 }' programs)
	tell target go
	wait_for_line target.out '^after=' 300
	kill -INT "$PID"
	wait_exit "$PID"
	[ "$(sum mapped_space)" -eq "$(awk -F= '/^before/ { before = $2 } /^after/ { printf "%.0f\n", $2 - before }' target.out)" ]
	tell target end
	wait_exit "$target"
}

test_growth() {
	record --mode growth -- "$WORKLOADS/grow" --thread
	"$HEAPTAP" report --folded --sample-index growth_space "$(last_snapshot p)" >folded
	while IFS='= ' read -r _ site _ grown; do
		[ "$(awk -v site=";$site;" '{ line = ";" $0; sub(/ [^ ]*$/, ";", line) } index(line, site) { sum += $NF } END { printf "%.0f\n", sum }' folded)" -eq "$grown" ]
	done < <(grep '^site=' truth)
}

# The hierarchy of cgroups v2 is the only one here.
test_cgroup() {
	local inside outside

	[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mkdir -p /sys/fs/cgroup/scope/below
	spawn outside "$WORKLOADS/calls" --wait
	outside=$PID
	spawn inside "$WORKLOADS/calls" --wait
	inside=$PID
	echo "$inside" >/sys/fs/cgroup/scope/below/cgroup.procs
	wait_for_line outside.out '^ready'
	wait_for_line inside.out '^ready'
	spawn heaptap "$HEAPTAP" record --cgroup /scope --sample-bytes 1 -o p
	wait_for_line heaptap.err '^Attached to cgroup '
	for name in outside inside; do
		tell "$name" go
		wait_for_line "$name.out" '^site=' 300
		tell "$name" end
	done
	wait_exit "$outside"
	wait_exit "$inside"
	wait_exit "$PID"
	matches_truth inside.out "$(last_snapshot p)"
	rmdir /sys/fs/cgroup/scope/below /sys/fs/cgroup/scope
}

# test_exact_by_pid WORKLOAD [ARGUMENT...]
test_exact_by_pid() {
	local workload=$1 target
	shift

	spawn "$workload" "$WORKLOADS/$workload" --wait "$@"
	target=$PID
	wait_for_line "$workload.out" '^ready'
	attach heaptap "$target" --sample-bytes 1 -o p
	tell "$workload" go
	wait_for_line "$workload.out" '^site=' 300
	tell "$workload" end
	wait_exit "$target"
	wait_exit "$PID"
	matches_truth "$workload.out" "$(last_snapshot p)"
}

# There is no python to tell whose the blocks are: all names are there, and the sums as without them.
test_named() {
	local name

	record --sample-bytes 1 --label-threads -- "$WORKLOADS/named"
	zcat p.0001.pb.gz >snapshot
	tr '\000' '\n' <snapshot >lines
	sed -nE 's/^site=([^ ]*) .*/\1/p' truth >names
	[ -s names ]
	while read -r name; do
		grep -aqF "$name" lines
	done <names
	by_leaf p.0001.pb.gz inuse_objects | awk '/^named_/ { print $2 }' | sort -n >sums
	awk -F'[ =]' '/^site=mover/ { print $8; next } /^site/ { sum += $8 } END { print sum }' truth |
		sort -n | cmp - sums
}

# A child inherits the breakpoints in its parent's memory, but not the parent's session.
test_forks() {
	# The parent alone.
	record --no-follow --sample-bytes 1 -- "$WORKLOADS/forks"
	matches_truth truth "$(last_snapshot p)"
	# The workload has checked that its children ended well; here is what the kernel says of them.
	! dmesg | grep -E 'traps: forks|segfault|trap int3'
}

# What all have allocated, and what the last one has in use, which has it from its parents.
test_fork_copy() {
	# Where return probes may kill other processes, these are not reached without --force.
	record --force --follow --fork-copy --sample-bytes 1 -- "$WORKLOADS/copies" orphan 500
	awk '
		/^process=/ { last = $2 == "role=last" }
		/^site=/ {
			sites[$1]
			for (i = 2; i <= NF; i++) {
				split($i, field, "=")
				if (last || field[1] ~ /^alloc/)
					sum[$1 " " field[1]] += field[2]
			}
		}
		END {
			for (site in sites)
				printf "%s alloc_objects=%d alloc_space=%d inuse_objects=%d inuse_space=%d\n", site,
					sum[site " alloc_objects"], sum[site " alloc_space"],
					sum[site " inuse_objects"], sum[site " inuse_space"]
		}' truth.* >sums
	matches_truth sums "$(last_snapshot p)"
	grep -q 'site=held_block .*inuse_objects=[1-9]' sums
}

# ------------------------------------------------------------------ attaching

test_killed_profiler() {
	local target

	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" --sample-bytes 1 -o p
	tell idle 'a 1000'
	wait_for_line idle.out '^done'
	kill -9 "$PID"
	wait_exit "$PID" || [ $? -eq 137 ]
	poll "$PATIENCE" no_programs
	tell idle 'a 1000'
	wait_for_line idle.out '^done' "$PATIENCE" 2
}

test_killed_target() {
	local target

	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" --sample-bytes 1 -o p
	tell idle 'a 3000000'
	wait_for_line idle.out '^done'
	kill -9 "$target"
	wait_exit "$PID"
	[ "$(reasons heaptap.err)" = 'Exiting, 2 MB in use' ]
	[ "$(by_leaf p.0001.pb.gz inuse_space)" = 'idle_malloc 3000000' ]
}

# Probes are placed through a file descriptor: no path leads to this libc any more.
test_deleted_library() {
	local target

	mkdir lib
	cp /lib/x86_64-linux-gnu/libc.so.6 lib
	spawn idle env LD_LIBRARY_PATH="$PWD/lib" "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	grep -q "$PWD/lib/libc.so.6" "/proc/$target/maps"
	rm lib/libc.so.6
	attach heaptap "$target" --sample-bytes 1 -o p
	tell idle 'a 5000'
	wait_for_line idle.out '^done'
	kill -INT "$PID"
	wait_exit "$PID"
	[ "$(by_leaf p.0001.pb.gz inuse_space)" = 'idle_malloc 5000' ]
}

# --------------------------------------------------------------- torture stacks

# torture PROGRAM ARG...: every stack equals the program's own backtrace(). What the loader does in
# the background takes an unknown time: more rounds if it was not done.
torture() {
	local program=$1 rounds
	shift
	for rounds in 30 300; do
		rm -f p.*
		record --sample-bytes 1 -o p -- "$program" $rounds "$@" >truth 2>log || {
			cat log
			return 1
		}
		same_stacks truth "$(last_snapshot p)" >wrong && return
	done
	cat wrong
	return 1
}

test_torture() {
	torture /heaptap/build/kernels/torture /heaptap/build/kernels/torture_lib.so
}

test_torture_static() {
	torture /heaptap/build/kernels/torture-static
}

# -------------------------------------------------------------------- the run

# Page faults, which no attach mode is about.
test_fault_programs_load() {
	local name insns

	HEAPTAP=$PLAIN_HEAPTAP
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	attach heaptap "$PID" -v --mode faults
	verified | grep -E "$FAULT_PROGRAMS" | sort -u >programs
	while read -r name insns; do
		echo "# $name $insns verified instructions"
		[ "$insns" -le "$MAX_VERIFIED" ]
	done <programs
	[ "$(wc -l <programs)" -eq 4 ]
	kill -INT "$PID"
	wait_exit "$PID"
	poll "$PATIENCE" no_programs
	if grep 'page tables cannot be read' heaptap.err; then
		return 1
	fi
}

# Every page, in every kind of memory.
test_faults() {
	HEAPTAP=$PLAIN_HEAPTAP
	spawn faults "$WORKLOADS/faults" --wait 1008
	wait_for_line faults.out '^ready'
	attach heaptap "$PID" --mode faults --sample-bytes 1 -o p
	tell faults go
	wait_for_line faults.out '^resident=fill_by_kernel' 300
	kill -INT "$PID"
	wait_exit "$PID"
	"$HEAPTAP" report --folded --sample-index fault_space p.0001.pb.gz >folded
	awk '
		NR == FNR {
			value = $NF
			sub(/ [^ ]*$/, "")
			count = split($0, frame, ";")
			sum[frame[count]] += value
			if (count > 1 && frame[count] ~ /pread/)
				sum[frame[count - 1]] += value
			next
		}
		/^resident=/ {
			split($1, name, "=")
			split($3, bytes, "=")
			if (sum[name[2]] + 0 != bytes[2] + 0) {
				print name[2] ": " bytes[2] ", heaptap has " sum[name[2]] + 0
				wrong = 1
			}
		}
		END { exit wrong }' folded faults.out
}

check_mode() {
	use_mode "$1"
	check "$1: every program loads" test_programs_load
	[ "$FAILED" -eq 0 ] || return
	check "$1: every program loads that labels threads" test_programs_load --label-threads
	[ "$FAILED" -eq 0 ] || return
	check "$1: what a program samples itself" test_sampler
	check "$1: names of threads" test_named
	check "$1: nine snapshots" test_nine
	check "$1: nine snapshots, sampled" test_nine_sampled
	check "$1: every allocation function" test_exact calls
	check "$1: every case of realloc" test_exact realloc
	check "$1: failed calls" test_exact failures
	check "$1: threads" test_exact threads 2000
	check "$1: threads that come and go" test_exact churn 100
	check "$1: forks" test_forks
	check "$1: copies for forked children" test_fork_copy
	check "$1: jumps, cancels and deaths in realloc" test_exact jumps
	check "$1: attached by PID: calls" test_exact_by_pid calls
	check "$1: attached by PID: realloc" test_exact_by_pid realloc
	check "$1: attached by PID: threads" test_exact_by_pid threads 2000
	check "$1: attached by PID: forks" test_exact_by_pid forks
	check "$1: a cgroup, v2 only" test_cgroup
	check "$1: kill -9 of heaptap" test_killed_profiler
	check "$1: kill -9 of the target" test_killed_target
	check "$1: a library that was deleted" test_deleted_library
	check "$1: stacks that are hard to unwind" test_torture
	check "$1: the same in a static program" test_torture_static
}

test_kernel_is_quiet() {
	! dmesg | grep -E 'BUG:|WARNING:|Oops|general protection|Call Trace|lockup|self-detected stall'
}

echo "# Linux $(uname -r), attach modes: ${MODES[*]}"
check 'the best mode is chosen' test_best_mode
for mode in perf multi session; do
	case " ${MODES[*]} " in
	*" $mode "*) check_mode "$mode" ;;
	*) check "$mode: a clear error where it is not supported" test_unsupported_mode "$mode" ;;
	esac
done
# These place no probes.
MODE=none
HEAPTAP=$PLAIN_HEAPTAP
check 'mappings, by smaps' test_mappings
check 'growth' test_growth
check 'page faults: every program loads' test_fault_programs_load
check 'page faults: every page' test_faults
check 'no complaint by the kernel' test_kernel_is_quiet
echo "1..$count"
poweroff -f
