#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The account of mappings against /proc/PID/smaps, and what made the heap grow.

load helpers

# sum FILE TYPE: over all samples, in bytes.
sum() {
	"$HEAPTAP" report --folded --sample-index "$2" "$1" | awk '{ sum += $NF } END { printf "%.0f\n", sum }'
}

# of FILE TYPE FUNCTION: what stacks through a function add up to.
of() {
	"$HEAPTAP" report --folded --sample-index "$2" "$1" |
		awk -v name="$3" '(";" $0) ~ ";" name "[; ]" { sum += $NF } END { printf "%.0f\n", sum }'
}

# smaps PID: anonymous address space, without the stack and what the kernel maps.
smaps() {
	awk '/^[0-9a-f]+-/ { counts = ($5 == 0 && $6 == "") || $6 == "[heap]" || $6 ~ /^\/dev\/zero/ }
		counts && /^Size/ { sum += $2 } END { printf "%.0f\n", sum * 1024 }' "/proc/$1/smaps"
}

# random_calls [OPTION...]: 100,000 calls of 8 threads, observed from the first.
random_calls() {
	spawn target "$WORKLOADS/mappings" --wait "${CALLS:-100000}" 8 "${SEED:-1}"
	TARGET=$PID
	wait_for_line target.out '^ready='
	attach heaptap "$TARGET" -o p "$@"
	PROFILER=$PID
	before=$(smaps "$TARGET")
}

@test "100,000 random calls of 8 threads: to the byte what smaps has" {
	for SEED in 1 2 3; do
		rm -f p.*
		random_calls --mmap-only
		tell target go
		wait_for_line target.out '^after='
		kill -INT "$PROFILER"
		wait_exit "$PROFILER"
		[ "$(sum p.0001.pb.gz mapped_space)" -eq $(($(smaps "$TARGET") - before)) ]
		pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
		pprof -comments p.0001.pb.gz | grep -qx 'stacks: 100.00 % of map_space complete'
		tell target end
		wait_exit "$TARGET"
	done
}

@test "at the syscalls' tracepoints it is the same" {
	# Where no function is found into which a program can be put.
	cat >elsewhere <<-END
		#!/bin/sh
		exec unshare -m sh -c 'mount --bind /dev/null /sys/kernel/tracing/available_filter_functions &&
			exec "$HEAPTAP" "\$@"' heaptap "\$@"
	END
	chmod +x elsewhere
	HEAPTAP=$PWD/elsewhere random_calls --mmap-only
	tell target go
	wait_for_line target.out '^after='
	kill -INT "$PROFILER"
	wait_exit "$PROFILER"
	[ "$(sum p.0001.pb.gz mapped_space)" -eq $(($(smaps "$TARGET") - before)) ]
	pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
	tell target end
	wait_exit "$TARGET"
}

@test "a full ring is a named loss, and the account is right again" {
	CALLS=400000 random_calls --mmap-only
	kill -STOP "$PROFILER"
	tell target go
	wait_for_line target.out '^after='
	kill -CONT "$PROFILER"
	kill -USR2 "$PROFILER"
	wait_for_line heaptap.err '\(signal.*\)$'
	[ "$(sum p.0001.pb.gz mapped_space)" -eq $(($(smaps "$TARGET") - before)) ]
	pprof -comments p.0001.pb.gz | grep -q '^loss: mapping_full [0-9]'
	"$HEAPTAP" report --folded --sample-index mapped_space p.0001.pb.gz | grep -q 'stack lost'
	tell target end
	wait_exit "$PROFILER"
}

@test "with malloc's account beside it, and neither in the other" {
	"$HEAPTAP" record --mmap --sample-bytes 1 -o p -- "$WORKLOADS/calls" >truth 2>log
	matches_truth truth p.0001.pb.gz
	[ "$(sum p.0001.pb.gz map_space)" -gt 0 ]
	pprof -raw p.0001.pb.gz | grep -q \
		'^alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes\[dflt\] map_objects/count map_space/bytes mapped_objects/count mapped_space/bytes reserved_space/bytes'
	# Each sample has one account's values.
	pprof -raw p.0001.pb.gz >raw
	awk '/^ +[0-9]+ +[0-9]+ .*:/ { n++; if (($1 || $2) && ($5 || $6)) bad = 1 } END { exit bad || !n }' raw
}

@test "what the last process has mapped is what its last snapshot says" {
	"$HEAPTAP" record --mmap-only -o p -- "$WORKLOADS/grow" >out 2>log
	mapped=$(sum p.0001.pb.gz mapped_space)
	[ "$mapped" -gt $((100 << 20)) ]
	[ "$(reasons log)" = "Exiting, $((mapped >> 20)) MB mapped" ]
}

@test "a call that the kernel refuses has mapped nothing and unmapped nothing" {
	local site objects space mapped

	"$HEAPTAP" record --mmap-only -o p -- "$WORKLOADS/refused" >truth 2>log
	[ "$(grep -c '^site=' truth)" -eq 2 ]
	while IFS='= ' read -r _ site _ objects _ space _ mapped; do
		[ "$(of p.0001.pb.gz map_objects "$site")" -eq "$objects" ]
		[ "$(of p.0001.pb.gz map_space "$site")" -eq "$space" ]
		[ "$(of p.0001.pb.gz mapped_space "$site")" -eq "$mapped" ]
	done <truth
	pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
}

@test "gperftools' variables ask for it, too" {
	HEAP_PROFILE_ONLY_MMAP=true "$HEAPTAP" record -o p -- "$WORKLOADS/calls" >truth 2>log
	pprof -raw p.0001.pb.gz | grep -q '^map_objects/count map_space/bytes mapped_objects/count mapped_space/bytes\[dflt\] reserved_space/bytes'
	HEAP_PROFILE_MMAP=1 "$HEAPTAP" record -o q -- "$WORKLOADS/calls" >truth 2>log
	pprof -raw q.0001.pb.gz | grep -q '^alloc_objects/count .* mapped_space/bytes'
}

# grows PROGRAM [ARGUMENT...]: to the byte what each function says.
grows() {
	rm -f p.*
	"$HEAPTAP" record --mode growth --alloc-interval 0 --inuse-interval 0 -o p -- "$@" >truth 2>log
	[ "$(grep -c '^site=' truth)" -eq 3 ]
	while IFS='= ' read -r _ site _ grown; do
		[ "$(of p.0001.pb.gz growth_space "$site")" -eq "$grown" ] || {
			echo "$* $site: $grown, heaptap has $(of p.0001.pb.gz growth_space "$site")" >&2
			return 1
		}
	done <truth
	pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
}

@test "growth: three functions, under each allocator, to the byte" {
	grows "$WORKLOADS/grow"
	# Freed or not.
	grows "$WORKLOADS/grow" --free
	# An arena reserves, and grows by making the next part usable.
	grows "$WORKLOADS/grow" --thread
	LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4 grows "$WORKLOADS/grow"
	LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 grows "$WORKLOADS/grow"
	if [ -e "$WORKLOADS/musl/grow" ]; then
		grows "$WORKLOADS/musl/grow"
	fi
}

@test "growth: what a syscall is about is never taken from an earlier one" {
	"$HEAPTAP" record --mode growth -o p -- "$WORKLOADS/usable" >out 2>log
	[ "$(of p.0001.pb.gz growth_space map)" -eq $((1 << 20)) ]
	[ "$(of p.0001.pb.gz growth_space protect)" -eq 0 ]
	pprof -comments p.0001.pb.gz | grep -qx 'losses: none'
	# Where the program at the beginning is not run, it is not known, and that is said.
	gcc -shared -fPIC -o blind.so "$E2E/../fixtures/blind.c" -lbpf
	LD_PRELOAD=$PWD/blind.so BLIND='mprotect_fentry mprotect_enter' \
		"$HEAPTAP" record --mode growth -o q -- "$WORKLOADS/usable" >out 2>log
	[ "$(of q.0001.pb.gz growth_space map)" -eq $((1 << 20)) ]
	[ "$(of q.0001.pb.gz growth_space protect)" -eq 0 ]
	pprof -comments q.0001.pb.gz | grep -q '^loss: mapping_unknown [0-9]'
}

@test "growth takes snapshots as the heap grows" {
	"$HEAPTAP" record --mode growth --alloc-interval 20M --inuse-interval 0 -o p -- "$WORKLOADS/grow" >truth 2>log
	[ "$(count_snapshots p)" -ge 4 ]
}

# complete FILE PERCENT: so much of what was mapped has whole stacks.
complete() {
	pprof -comments "$1" | awk -v least="$2" '/^stacks: / { ok = $2 >= least } END { exit !ok }'
}

# fill NAME COMMAND...: records what it maps after a line on its stdin, as NAME.0001.pb.gz.
fill() {
	local name=$1 target
	shift

	spawn "$name" "$@"
	target=$PID
	wait_for_line "$name.out" '^ready' 60
	attach heaptap "$target" --mmap-only -o "$name"
	tell "$name" go
	wait_for_line "$name.out" '^filled' 60
	kill -INT "$PID"
	wait_exit "$PID"
	tell "$name" end
	wait_exit "$target" || true
}

@test "Go: its heap is mappings, and what it only reserves is told apart" {
	command -v go >/dev/null || skip "go is not installed"
	cat >heap.go <<-'END'
		package main
		import "fmt"
		var kept [][]byte
		func main() { for i := 0; i < 64; i++ { kept = append(kept, make([]byte, 1<<20)) }; fmt.Println(len(kept)) }
	END
	GOCACHE=$PWD/cache go build -o heap heap.go
	"$HEAPTAP" record --mmap-only -o p -- ./heap >out 2>log
	# The runtime maps on a stack of its own, where its stacks begin.
	[ "$(of p.0001.pb.gz map_space 'runtime\\.sysMap')" -gt $((64 << 20)) ]
	[ "$(sum p.0001.pb.gz reserved_space)" -gt $((256 << 20)) ]
	[ $(($(sum p.0001.pb.gz mapped_space) - $(sum p.0001.pb.gz reserved_space))) -lt $((256 << 20)) ]
	complete p.0001.pb.gz 70
}

@test "node, python and java: their heaps are mappings with stacks" {
	fill node node -e 'console.log("ready"); process.stdin.on("data", () => {
		globalThis.a = globalThis.a || []; if (a.length) process.exit();
		for (let i = 0; i < 3e6; i++) a.push({i}); console.log("filled") })'
	[ "$(sum node.0001.pb.gz map_space)" -gt $((50 << 20)) ]
	complete node.0001.pb.gz 95
	fill python python3 -c 'print("ready", flush=True); input()
a = [str(i) for i in range(1000000)]
print("filled", flush=True); input()'
	[ "$(sum python.0001.pb.gz map_space)" -gt $((30 << 20)) ]
	complete python.0001.pb.gz 95
	java --list-modules 2>/dev/null | grep -q '^jdk.compiler' || return 0
	cat >Fill.java <<-'END'
		public class Fill {
			public static void main(String[] args) throws Exception {
				System.out.println("ready");
				System.in.read();
				byte[][] kept = new byte[100][];
				for (int i = 0; i < kept.length; i++)
					kept[i] = new byte[1 << 20];
				System.out.println("filled " + kept.length);
				System.in.read();
				System.in.read();
			}
		}
	END
	fill java java -Xms16m -Xmx512m Fill.java
	# Up to the code that the JVM has made.
	[ "$(of java.0001.pb.gz map_space 'os::[^;]*commit_memory[^;]*')" -gt $((64 << 20)) ]
}

@test "--mmap belongs to --mode heap, and modes have names" {
	run --separate-stderr "$HEAPTAP" record --mode growth --mmap -- true
	[ "$status" -eq 2 ]
	[[ $stderr == *"leave --mmap and --mmap-only out, or --mode"* ]]
	run --separate-stderr "$HEAPTAP" record --mode fast -- true
	[ "$status" -eq 1 ]
	[[ $stderr == *"use heap, growth, faults or sampler"* ]]
}

@test "variables that ask for mappings are passed over where a mode has no use for them" {
	for mode in growth faults; do
		for variable in HEAP_PROFILE_MMAP HEAP_PROFILE_ONLY_MMAP; do
			env $variable=1 "$HEAPTAP" record --mode "$mode" -o "$mode" -- "$WORKLOADS/grow" >out 2>log
			run ! grep -q '^heaptap: [^w]' log
			run ! grep -q 'mapped' <<<"$(pprof -raw "$mode.0001.pb.gz" | sed -n '/^Samples:$/{n;p;}')"
		done
	done
	# With --mode heap they count, and are what an option is of no use to.
	HEAP_PROFILE_MMAP=1 "$HEAPTAP" record --mode heap -o p -- "$WORKLOADS/grow" >out 2>log
	grep -q 'mapped_space' <<<"$(pprof -raw p.0001.pb.gz)"
	HEAP_PROFILE_ONLY_MMAP=1 run -2 --separate-stderr "$HEAPTAP" record --max-live 100 -- true
	[[ $stderr == *"--max-live is about blocks of an allocator, which HEAP_PROFILE_ONLY_MMAP does not"* ]]
}

@test "children, threads and exec" {
	"$HEAPTAP" record --mmap-only --split --label-threads -o p -- bash -c 'python3 -c "a = bytearray(50 << 20)"; exec perl -e "my \$x = q(y) x 30000000"' >out 2>log
	[ "$(grep -c '' <<<"$(ls p.*.pb.gz)")" -ge 2 ]
	total=0
	for file in p.*.pb.gz; do
		total=$((total + $(sum "$file" map_space)))
	done
	[ "$total" -gt $((80 << 20)) ]
	for file in p.*.pb.gz; do
		pprof -tags "$file" | grep -q '^ *thread: '
		# Nobody has more in use than mapped, nor less than nothing.
		run ! grep -qE ' -[0-9]+$' <<<"$("$HEAPTAP" report --folded --sample-index mapped_space "$file")"
	done
}
