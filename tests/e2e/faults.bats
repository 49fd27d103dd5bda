#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# --mode faults: what made memory resident, in which kind of memory, in any language.

load helpers
load containers

PAGES=1008
FOLIOS=/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled

setup() {
	begin_test
	OLD_FOLIOS=
	IN_CONTAINERS=
}

teardown() {
	[ -z "$OLD_FOLIOS" ] || echo "$OLD_FOLIOS" >"$FOLIOS"
	[ -z "$IN_CONTAINERS" ] || containers_teardown
	end_test
}

# through FUNCTION FILE [TYPE]: the sum of all stacks that pass through it; of all, if it is ''.
through() {
	"$HEAPTAP" report --folded --sample-index "${3:-fault_space}" "$2" | awk -v name="$1" '
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			if (name == "" || index(";" $0 ";", ";" name ";"))
				sum += value
		}
		END { printf "%.0f\n", sum }'
}

# own_leaves FILE: `FUNCTION BYTES` for each function that touched memory, or had the kernel do it.
own_leaves() {
	"$HEAPTAP" report --folded --sample-index fault_space "$1" | awk '
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			count = split($0, frame, ";")
			sum[frame[count]] += value
			if (count > 1 && frame[count] ~ /pread/)
				sum[frame[count - 1]] += value
		}
		END { for (leaf in sum) printf "%s %.0f\n", leaf, sum[leaf] }'
}

# made_resident TRUTH SNAPSHOT: each function's bytes, exactly.
made_resident() {
	own_leaves "$2" >measured || return 1
	has_lines "$1" '^resident=' 1 || return 1
	awk '
		NR == FNR { measured[$1] = $2; next }
		/^resident=/ {
			split($1, name, "=")
			split($3, bytes, "=")
			if (measured[name[2]] + 0 != bytes[2] + 0) {
				printf "%s: %.0f, heaptap has %.0f\n", name[2], bytes[2], measured[name[2]]
				wrong = 1
			}
		}
		END { exit wrong }' measured "$1" >&2
}

# close_enough TRUTH SNAPSHOT SAMPLE_BYTES: each function's bytes within five sigma; pages are picked
# with p = 1 - exp(-4096/R), so n of them have variance n 4096^2 (1-p)/p.
close_enough() {
	own_leaves "$2" >measured || return 1
	has_lines "$1" '^resident=' 1 || return 1
	awk -v mean="$3" '
		NR == FNR { measured[$1] = $2; next }
		/^resident=/ {
			split($1, name, "=")
			split($3, bytes, "=")
			p = 1 - exp(-4096 / mean)
			sigma = sqrt(bytes[2] * 4096 * (1 - p) / p)
			error = measured[name[2]] - bytes[2]
			printf "%s: %.0f, heaptap has %.0f, %+.1f sigma\n", name[2], bytes[2], \
				measured[name[2]], sigma ? error / sigma : 0
			if (error < -5 * sigma || error > 5 * sigma)
				wrong = 1
		}
		END { exit wrong }' measured "$1" >&2
}

# kinds_match TRUTH SNAPSHOT: each function has its bytes in the kind of memory that it says.
kinds_match() {
	"$E2E/pprof_labels.py" "$2" fault_space memory >measured || return 1
	awk '
		NR == FNR { measured[$2 " " $1] = $3; next }
		/^resident=/ {
			split($1, name, "=")
			split($2, kind, "=")
			split($3, bytes, "=")
			key = name[2] " " kind[2]
			if (name[2] != "fill_by_kernel" && measured[key] + 0 != bytes[2] + 0) {
				print key ": " bytes[2] ", heaptap has " measured[key]
				wrong = 1
			}
		}
		END { exit wrong }' measured "$1" >&2
}

# record_faults OPTION... -- WORKLOAD...: the snapshot is p.0001.pb.gz, the truth what it prints.
record_faults() {
	"$HEAPTAP" record --mode faults -o p "$@" >truth 2>log || {
		cat log >&2
		return 1
	}
}

# attach_ready COMMAND...: attaches to a program that says `ready`, with OPTIONS, and lets it go.
attach_ready() {
	spawn target "$@"
	TARGET=$PID
	wait_for_line target.out '^ready'
	attach heaptap "$TARGET" --mode faults -o p "${OPTIONS[@]}"
	tell target go
}

end_session() {
	kill -INT "$PID"
	wait_exit "$PID"
}

@test "every page, in every kind of memory" {
	record_faults --sample-bytes 1 -- "$WORKLOADS/faults" "$PAGES"
	kinds_match truth p.0001.pb.gz
	# A read of a file maps its surroundings along.
	[ "$(through read_file p.0001.pb.gz faults)" -lt "$PAGES" ]
	pprof -raw p.0001.pb.gz | grep -q 'sampling: none, every page fault is counted'
	readable "$WORKLOADS/faults" p.0001.pb.gz
	run ! grep -E 'fault_(missed|size)' log
}

@test "a page is the smallest distance between samples" {
	record_faults --sample-bytes 4096 -- "$WORKLOADS/faults" 16
	kinds_match truth p.0001.pb.gz
}

@test "attached by PID" {
	OPTIONS=(--sample-bytes 1)
	attach_ready "$WORKLOADS/faults" --wait "$PAGES"
	wait_for_line target.out '^resident=fill_by_kernel'
	end_session
	made_resident target.out "$(last_snapshot p)"
	kinds_match target.out "$(last_snapshot p)"
}

@test "large folios, which one fault maps as a whole" {
	[ -e "$FOLIOS" ] || skip "this kernel has no large folios of anonymous memory"
	OLD_FOLIOS=$(sed -E 's/.*\[(.*)\].*/\1/' "$FOLIOS")
	echo madvise >"$FOLIOS"
	record_faults --sample-bytes 1 -- "$WORKLOADS/faults" "$PAGES"
	grep -qx 'resident=touch_parts memory=anonymous bytes=524288' truth
	kinds_match truth p.0001.pb.gz
}

@test "sampled: within five sigma, and the profile says how far off it may be" {
	record_faults --sample-bytes 64K -- "$WORKLOADS/faults" 40000 16
	close_enough truth p.0001.pb.gz 65536
	pprof -raw p.0001.pb.gz | grep -qE '^Period: 65536$'
	pprof -raw p.0001.pb.gz | grep -qE 'sampling: one page fault per 65536 bytes .* standard error [0-9]+ \([0-9.]+ %\)'
	grep -qE '^Sampling: made resident [0-9.]+ MB, standard error [0-9.]+ MB$' log
}

@test "sampled: a program that touches its memory always in the same order" {
	# The default distance is 128 pages, and a fixed period would be near it.
	for period in 127 128 129; do
		record_faults -- "$WORKLOADS/faults" 120000 "$period"
		close_enough truth p.0001.pb.gz 524288
	done
}

@test "sampled: the mean of many runs is the truth" {
	for ((i = 0; i < 20; i++)); do
		record_faults -- "$WORKLOADS/faults" 20000 128
		own_leaves p.0001.pb.gz >>all
	done
	# 20 runs of 156 turns.
	awk '
		{ sum[$1] += $2 }
		END {
			truth["touch_one"] = 156
			truth["touch_two"] = 156 * 2
			truth["touch_three"] = 156 * 125
			p = 1 - exp(-4096 / 524288)
			for (name in truth) {
				n = 20 * truth[name]
				sigma = 4096 * sqrt(n * (1 - p) / p)
				error = sum[name] - n * 4096
				printf "%s: %+.1f sigma\n", name, error / sigma
				if (error < -5 * sigma || error > 5 * sigma)
					wrong = 1
			}
			exit wrong
		}' all >&2
}

@test "snapshots: by bytes, by time, by signal" {
	OPTIONS=(--sample-bytes 1 --alloc-interval 10M --interval 0)
	attach_ready "$WORKLOADS/faults" --wait 6000 16
	wait_for_line target.out '^resident=touch_three'
	wait_for_line heaptap.err '^Dumping heap profile to .* \(10 MB made resident cumulatively\)$'
	wait_for_line heaptap.err '^Dumping heap profile to .* \(20 MB made resident cumulatively\)$'
	kill -USR2 "$PID"
	wait_for_line heaptap.err '^Dumping heap profile to .* \(signal\)$'
	tell target end
	wait_exit "$PID"
	wait_for_line heaptap.err '^Dumping heap profile to .* \(Exiting, 23 MB made resident\)$'
	[ "$(through '' p.0001.pb.gz)" -eq $((10 << 20)) ]
	spawn target "$WORKLOADS/idle"
	wait_for_line target.out '^idle'
	attach heaptap "$PID" --mode faults --interval 1 -o q
	wait_for_line heaptap.err '^Dumping heap profile to .* \(1 sec since the last dump\)$'
	end_session
}

@test "children, a file for each, and names of threads" {
	cat >run.sh <<-END
		"$WORKLOADS/faults" 512 16 &
		"$WORKLOADS/faults" 1024 16 &
		wait
	END
	record_faults --sample-bytes 1 --split --label-threads -- /bin/bash run.sh
	sums=$(for file in p.*.0001.pb.gz; do
		"$E2E/pprof_labels.py" "$file" fault_space comm thread | awk '/^faults faults touch_(one|two|three) / { sum += $4 } END { print sum + 0 }'
	done | sort -n | paste -sd ' ')
	[ "$sums" = "0 $((512 * 4096)) $((1024 * 4096))" ]
	run ! grep late log
}

@test "the whole machine" {
	spawn heaptap "$HEAPTAP" record -a --mode faults --sample-bytes 4096 -o p
	wait_for_line heaptap.err '^Attached to all processes'
	"$WORKLOADS/faults" 4096 16 >truth
	end_session
	made_resident truth "$(last_snapshot p)"
}

@test "a container" {
	containers_setup
	IN_CONTAINERS=1
	image_build
	image_add "$WORKLOADS/faults"
	mv "$IMAGE$WORKLOADS/faults" "$IMAGE/bin"
	container_prepare "$BOX" /bin/sh -c 'read -r line <go; faults 1024 16 >truth; echo done >done; read -r line <go'
	mkfifo "$BOX/rootfs/work/go"
	container_start "$BOX"
	spawn heaptap "$HEAPTAP" record --container "$BOX" --mode faults --sample-bytes 1 -o p
	wait_for_line heaptap.err '^Attached to '
	timeout "$PATIENCE" bash -c "echo go >'$BOX/rootfs/work/go'"
	poll "$PATIENCE" test -s "$BOX/rootfs/work/done"
	end_session
	made_resident "$BOX/rootfs/work/truth" "$(last_snapshot p)"
}

@test "Go" {
	command -v go >/dev/null || skip "go is not installed"
	cat >app.go <<-'END'
		package main

		import (
			"fmt"
			"os"
			"syscall"
		)

		//go:noinline
		func touchOne(memory []byte) { touch(memory) }

		//go:noinline
		func touchTwo(memory []byte) { touch(memory) }

		//go:noinline
		func touchThree(memory []byte) { touch(memory) }

		func touch(memory []byte) {
			for i := 0; i < len(memory); i += 4096 {
				memory[i] = 1
			}
		}

		// Memory that nothing has touched before.
		func pages(count int) []byte {
			memory, err := syscall.Mmap(-1, 0, count*4096, syscall.PROT_READ|syscall.PROT_WRITE,
				syscall.MAP_ANON|syscall.MAP_PRIVATE)
			if err != nil {
				os.Exit(1)
			}
			return memory
		}

		var heap [][]byte

		//go:noinline
		func fillHeap() {
			for i := 0; i < 64; i++ {
				block := make([]byte, 1<<20)
				for j := range block {
					block[j] = 1
				}
				heap = append(heap, block)
			}
		}

		func main() {
			touchOne(pages(10000))
			touchTwo(pages(20000))
			touchThree(pages(30000))
			fillHeap()
			fmt.Println("resident=main.touchOne memory=anonymous bytes=40960000")
			fmt.Println("resident=main.touchTwo memory=anonymous bytes=81920000")
			fmt.Println("resident=main.touchThree memory=anonymous bytes=122880000")
		}
	END
	GOCACHE=$BATS_FILE_TMPDIR/go GO111MODULE=off GOFLAGS='' go build -o app app.go
	record_faults --sample-bytes 64K -- ./app
	# touch() is inlined into its callers.
	for name in One Two Three; do
		echo "main.touch$name $(through "main.touch$name" p.0001.pb.gz)"
	done >measured.go
	own_leaves() { cat measured.go; }
	close_enough truth p.0001.pb.gz 65536
	# The heap, which the runtime makes resident for the program and now and then reuses.
	[ "$(through main.fillHeap p.0001.pb.gz)" -ge $((50 << 20)) ]
	run ! grep 'Go runtime' log
}

@test "node: memory of JavaScript functions" {
	command -v node >/dev/null || skip "node is not installed"
	cat >app.js <<-'END'
		const kept = [];
		function fillOne() { kept.push(Buffer.alloc(40 << 20, 1)); }
		function fillTwo() { kept.push(Buffer.alloc(80 << 20, 1)); }
		function fillThree() { kept.push(Buffer.alloc(120 << 20, 1)); }
		fillOne(); fillTwo(); fillThree();
		console.log("resident=fillOne memory=anonymous bytes=" + (40 << 20));
		console.log("resident=fillTwo memory=anonymous bytes=" + (80 << 20));
		console.log("resident=fillThree memory=anonymous bytes=" + (120 << 20));
	END
	record_faults --sample-bytes 64K -- node --perf-basic-prof --interpreted-frames-native-stack app.js
	"$HEAPTAP" report --folded --sample-index fault_space p.0001.pb.gz | awk '
		{
			for (i = 1; i < 4; i++) {
				name = i == 1 ? "fillOne" : i == 2 ? "fillTwo" : "fillThree"
				if ($0 ~ "[:~*+^]" name " ")
					sum[name] += $NF
			}
		}
		END { for (name in sum) printf "%s %.0f\n", name, sum[name] }' >measured.node
	own_leaves() { cat measured.node; }
	close_enough truth p.0001.pb.gz 65536
}

@test "java: a heap that is touched at the start" {
	command -v java >/dev/null || skip "java is not installed"
	record_faults -- java -Xms128m -Xmx128m -XX:+AlwaysPreTouch -XX:-UseTransparentHugePages -version
	# By functions of libjvm.so, which may have no names; its table comes in the background.
	"$HEAPTAP" report --folded --sample-index fault_space p.0001.pb.gz | awk '
		split($0, frame, ";") > 1 { sum += $NF }
		END { exit sum < 128 * 1048576 * 0.9 }'
	[ "$(through '' p.0001.pb.gz)" -ge $((128 << 20)) ]
	"$HEAPTAP" report --text p.0001.pb.gz | grep -qE '^Memory: .*anonymous [0-9.]+ MB'
}

@test "python3: objects" {
	record_faults -- /usr/bin/python3 -c '
kept = [bytearray(1 << 20) for _ in range(64)]
more = [str(i) for i in range(400000)]'
	[ "$(through '' p.0001.pb.gz)" -ge $((64 << 20)) ]
	[ "$(sed -nE 's/^Stacks: ([0-9]+)\..*/\1/p' log)" -ge 90 ]
}

@test "kill -9 of heaptap leaves nothing" {
	spawn idle "$WORKLOADS/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" --mode faults --sample-bytes 1 -o p
	programs=$(programs_of "$PID")
	[ "$(wc -w <<<"$programs")" -ge 3 ]
	kill -9 "$PID"
	wait_exit "$PID" || [ $? -eq 137 ]
	poll "$PATIENCE" none_is_left "$programs"
	tell idle 'a 1000'
	wait_for_line idle.out '^done'
}

# programs_of PID: ids of the BPF programs that it holds, by its descriptors.
programs_of() {
	awk '/^prog_id:/ { print $2 }' /proc/"$1"/fdinfo/* 2>/dev/null | sort -u
}

none_is_left() {
	local id

	for id in $1; do
		! bpftool prog show id "$id" >/dev/null 2>&1 || return 1
	done
}

@test "options that are about an allocator are errors" {
	for option in '--fork-copy --follow' '--max-slowdown 10' '--symbol-prefix acme_' '--attach perf' \
		'--inuse-interval 10M' '--free-interval 10M' '--max-live 100' '--mmap'; do
		# shellcheck disable=SC2086
		run -2 "$HEAPTAP" record --mode faults $option -p 1
		[[ $output == *"${option%% *}"*"leave"* ]] || [[ $output == *'--mmap'* ]]
	done
	# Of the environment they may be meant for others.
	export HEAP_PROFILE_INUSE_INTERVAL=10M HEAP_PROFILE_DEALLOCATION_INTERVAL=10M
	record_faults --sample-bytes 1 -- "$WORKLOADS/faults" 6000 16
	[ "$(count_snapshots p)" -eq 1 ]
}

@test "without perf events: what to do" {
	command -v strace >/dev/null || skip "strace is not installed"
	run -1 strace -f -o trace -e inject=perf_event_open:error=EACCES "$HEAPTAP" record --mode faults -o p -- true
	[[ $output == *'not allowed to open perf events'*'CAP_PERFMON'*'on the host'* ]]
	run -1 strace -f -o trace -e inject=perf_event_open:error=ENOENT "$HEAPTAP" record --mode faults -o p -- true
	[[ $output == *'no events for page faults'*'CONFIG_PERF_EVENTS'* ]]
}
