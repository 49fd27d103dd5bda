#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What cannot work is said in one line that names the object and the next step.

load helpers

# shellcheck disable=SC2154 # `run --separate-stderr` sets stderr and stderr_lines

# fails PATTERN COMMAND...: exit status 1 and a single line of ours that matches.
fails() {
	local pattern=$1
	shift
	run -1 --separate-stderr timeout "$PATIENCE" "$@" </dev/null
	echo "$stderr"
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "heaptap: "* ]]
	[[ $stderr =~ $pattern ]]
}

@test "no such PID" {
	# Above any PID the kernel gives out.
	fails '4194305' "$HEAPTAP" record -p 4194305 -o p
}

@test "a PID that is no number" {
	fails 'abc' "$HEAPTAP" record -p abc -o p
	fails '-1' "$HEAPTAP" record -p -1 -o p
	fails '0' "$HEAPTAP" record -p 0 -o p
}

@test "a kernel thread" {
	fails '2.*kernel thread' "$HEAPTAP" record -p 2 -o p
}

@test "a zombie" {
	spawn parent python3 -u -c '
import os, sys, time
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("zombie", pid)
sys.stdin.readline()
'
	wait_for_line parent.out '^zombie'
	zombie=$(awk '{ print $2 }' parent.out)
	fails "$zombie.*(zombie|exited)" "$HEAPTAP" record -p "$zombie" -o p
}

@test "not root" {
	folder=$(mktemp -d)
	chmod 755 "$folder"
	cp "$HEAPTAP" "$folder/heaptap"
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	fails '(root|sudo|CAP_)' setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
		"$folder/heaptap" record -p "$PID" -o "$folder/p"
	rm -r "$folder"
}

@test "root without capabilities" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	fails 'CAP_BPF.*on the host.*--privileged.*doctor' setpriv --bounding-set=-sys_admin,-bpf \
		"$HEAPTAP" record -p "$PID" -o p
}

@test "a kernel without BTF" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	fails 'BTF' unshare -m sh -c 'mount -t tmpfs tmpfs /sys/kernel/btf && exec "$@"' sh \
		"$HEAPTAP" record -p "$PID" -o p
}

@test "a PID namespace of its own" {
	fails 'PID namespace' unshare -pf --mount-proc "$HEAPTAP" record -p 1 -o p
}

runs() {
	[ "$(readlink "/proc/$1/exe")" = "$2" ]
}

@test "a program without malloc" {
	cat >bare.c <<-END
		void _start(void)
		{
			for (;;)
				__asm__ volatile("syscall" : : "a"(34) : "rcx", "r11", "memory"); /* pause */
		}
	END
	gcc -O1 -nostdlib -static -s bare.c -o bare
	spawn bare ./bare
	poll "$PATIENCE" runs "$PID" "$PWD/bare"
	fails 'no allocator found' "$HEAPTAP" record -p "$PID" -o p
}

@test "an output that cannot be written" {
	spawn idle "$WORKLOADS/idle"
	wait_for_line idle.out '^idle'
	fails 'missing' "$HEAPTAP" record -p "$PID" -o missing/p
	fails 'idle\.out/log' "$HEAPTAP" record -p "$PID" -o idle.out/log/p
	mount_small readonly 64k
	mount -o remount,ro readonly
	fails 'readonly' "$HEAPTAP" record -p "$PID" -o readonly/p
	fails 'readonly' "$HEAPTAP" record -o readonly/p -- "$WORKLOADS/deep"
}

@test "a PREFIX that is a folder" {
	mkdir folder
	fails 'folder' "$HEAPTAP" record -o folder -- "$WORKLOADS/deep"
	fails 'folder' "$HEAPTAP" record -o folder/ -- "$WORKLOADS/deep"
	[ "$(find folder | wc -l)" -eq 1 ]
}

@test "sizes that are none" {
	for size in 0 -1 abc '' 1X 99999999999999999999; do
		fails '--sample-bytes' "$HEAPTAP" record --sample-bytes "$size" -o p -- "$WORKLOADS/deep"
	done
	fails '--alloc-interval' "$HEAPTAP" record --alloc-interval -5 -o p -- "$WORKLOADS/deep"
	fails '--interval' "$HEAPTAP" record --interval abc -o p -- "$WORKLOADS/deep"
	fails 'HEAP_PROFILE_INUSE_INTERVAL' env HEAP_PROFILE_INUSE_INTERVAL=abc \
		"$HEAPTAP" record -o p -- "$WORKLOADS/deep"
	# The same limit, wherever a threshold comes from.
	fails '--alloc-interval .* too large: give at most 16777216G' \
		"$HEAPTAP" record --alloc-interval 16777217G -o p -- "$WORKLOADS/deep"
	fails 'HEAP_PROFILE_INUSE_INTERVAL .* too large: give at most 16777216G' \
		env HEAP_PROFILE_INUSE_INTERVAL=16777217G "$HEAPTAP" record -o p -- "$WORKLOADS/deep"
	fails '--interval .* too large: give a whole number up to 9000000000' \
		"$HEAPTAP" record --interval 9000000001 -o p -- "$WORKLOADS/deep"
	HEAP_PROFILE_INUSE_INTERVAL=100G "$HEAPTAP" record -q --alloc-interval 16777216G -o p -- "$WORKLOADS/deep"
}

@test "a command that does not exist" {
	fails '/no/such/program' "$HEAPTAP" record -o p -- /no/such/program
	fails 'no-such-program' "$HEAPTAP" record -o p -- no-such-program
	: >not-executable
	fails 'not-executable' "$HEAPTAP" record -o p -- ./not-executable
	[ "$(count_snapshots p)" -eq 0 ]
}

@test "usage errors exit with 2" {
	run -2 "$HEAPTAP" record
	run -2 "$HEAPTAP" record --no-such-option
	run -2 "$HEAPTAP" no-such-command
	run -2 "$HEAPTAP" report
	run -2 "$HEAPTAP"
}

@test "files that are no profiles" {
	echo 'not a profile' >text
	: >empty
	head -c 1000 /dev/urandom >noise
	gzip -c text >text.gz
	for file in text empty noise text.gz missing /; do
		fails "$file" "$HEAPTAP" report "$file"
	done
	for line in 'heap profile:      1:  1048576 [     2:     2048] @ heapprofile' 'heap_v2/524288'; do
		printf '%s\n' "$line" >old.heap
		fails 'old.heap.* by gperftools or jemalloc.*go tool pprof.*jeprof' "$HEAPTAP" report old.heap
	done
}
