#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# record --mode sampler: heaptap takes what allocators sample by themselves, and nothing else traps.

load helpers

TCMALLOC=/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4
RUNS=20

needs_tcmalloc() {
	[ -e "$TCMALLOC" ] || skip "needs libgoogle-perftools4"
	[ -e "$WORKLOADS/linked/sites" ] || skip "needs libgoogle-perftools-dev"
}

needs_jemalloc() {
	[ -e "$WORKLOADS/jemalloc/sites.whole" ] || skip "needs libjemalloc-dev"
}

needs_told() {
	[ -e "$WORKLOADS/told" ] || skip "needs systemtap-sdt-dev"
}

# types FILE: its sample types.
types() {
	pprof -raw "$1" | sed -n '/^Samples:$/{n;p;}' | tr -s ' ' '\n' | cut -d / -f 1 | paste -sd ' '
}

# comments FILE
comments() {
	pprof -comments "$1"
}

# estimates RUN: the last snapshot of prefix RUN as sampling_check.py reads it.
estimates() {
	local type snapshot

	snapshot=$(last_snapshot "$1")
	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		by_leaf "$snapshot" "$type" >"$1.$type"
	done
}

# is_unbiased SAMPLE_BYTES PROGRAM [VARIABLE=VALUE]: RUNS recordings of `sites`, told to sample.
is_unbiased() {
	local run seed runs=()

	for ((seed = 1; seed <= RUNS; seed++)); do
		run=run$seed
		env "${3:-TCMALLOC_SAMPLE_PARAMETER=$1}" "$HEAPTAP" record --mode sampler -o "$run" -- \
			"$2" "$seed" >"$run.truth" 2>"$run.log"
		estimates "$run"
		runs+=("$run")
	done
	python3 "$E2E/sampling_check.py" "$1" "${runs[@]}"
}

# only_unarmed FILE: nothing is lost but what tcmalloc does not sample itself.
only_unarmed() {
	comments "$1" | grep '^loss' >losses
	[ "$(grep -cvE '^loss: sampler_unarmed 1 \(1[0-9]{7} bytes\)' losses)" -eq 0 ]
}

@test "tcmalloc's samples are unbiased, allocated and in use, also of more than the distance" {
	needs_tcmalloc
	is_unbiased 16384 "$WORKLOADS/linked/sites"
	comments run1.0001.pb.gz | grep -q '^sampling: by tcmalloc itself, by chance, one per 16384 bytes'
	only_unarmed run1.0001.pb.gz
	pprof -raw run1.0001.pb.gz | grep -qx 'Period: 16384'
}

@test "tcmalloc in the program: the allocator's own frames are left out by their names" {
	needs_tcmalloc
	is_unbiased 65536 "$WORKLOADS/tcmalloc/sites.whole"
}

@test "a running process: by the parameter in its environment, and chosen by itself" {
	needs_tcmalloc
	TCMALLOC_SAMPLE_PARAMETER=65536 spawn sites "$WORKLOADS/linked/sites" --wait 5
	target=$PID
	wait_for_line sites.out '^ready'
	attach heaptap "$target" -o run
	profiler=$PID
	grep -q "^Sampler: tcmalloc's own, one sample per 65536 bytes.*--mode heap" heaptap.err
	tell sites ''
	wait_for_line sites.out '^site='
	kill -INT "$profiler"
	wait_exit "$profiler"
	cp sites.out run.truth
	estimates run
	python3 "$E2E/sampling_check.py" 65536 run
	types run.0001.pb.gz | grep -q inuse_space
}

@test "without a parameter: the countdown, and nothing is said of what is in use" {
	needs_tcmalloc
	"$HEAPTAP" record --mode sampler -o p -- "$WORKLOADS/linked/countdown" >truth 2>log
	snapshot=$(last_snapshot p)
	grep -q "^Sampler: tcmalloc's countdown, one sample per 16 MB and thread; in use is not known" log
	! grep -q 'currently in use\|MB in use' log
	types "$snapshot" | grep -q 'alloc_space'
	! types "$snapshot" | grep -q 'inuse'
	comments "$snapshot" | grep -q '^in use: not known'
	by_leaf "$snapshot" alloc_space >measured
	skipped=$(comments "$snapshot" | sed -nE 's/^loss: sampler_skipped [0-9]+ \(([0-9]+) bytes\).*/\1/p')
	# The sum but for the last 16 MiB; those above 16 MiB exactly; others as by chance.
	awk -v skipped="${skipped:-0}" '
		NR == FNR { measured[$1] = $2; all += $2; next }
		/^site=/ {
			site = substr($1, 6)
			split($3, part, "=")
			truth = part[2]
			whole += truth
			sigma = sqrt(truth * 16777216)
			error = measured[site] - truth
			if (site == "count_huge" ? error : error > 5 * sigma || error < -5 * sigma - skipped) {
				printf "%s: %.0f, truth %.0f, sigma %.0f\n", site, measured[site], truth, sigma
				wrong = 1
			}
		}
		END {
			missing = whole - all - skipped
			if (missing < -1000 || missing > 16777216 + 1000000) {
				printf "sum %.0f, skipped %.0f, truth %.0f\n", all, skipped, whole
				wrong = 1
			}
			exit wrong
		}' measured truth
}

@test "the countdown is not chosen by itself" {
	needs_tcmalloc
	"$HEAPTAP" record --sample-bytes 64K -o p -- "$WORKLOADS/linked/idle" </dev/null >out 2>log
	! grep -q '^Sampler' log
	types "$(last_snapshot p)" | grep -q inuse_space
}

@test "--mode heap and --sample-bytes keep heaptap's own samples" {
	needs_tcmalloc
	export TCMALLOC_SAMPLE_PARAMETER=65536
	for options in '--mode heap' '--sample-bytes 1' '--mmap'; do
		# shellcheck disable=SC2086
		"$HEAPTAP" record $options -o p -- "$WORKLOADS/linked/idle" </dev/null >out 2>log
		! grep -q '^Sampler' log
	done
}

@test "options that are about heaptap's own samples, or about calls" {
	needs_tcmalloc
	for option in '--sample-bytes 1' '--max-slowdown 10'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr "$HEAPTAP" record --mode sampler $option -o p -- "$WORKLOADS/linked/idle"
		# shellcheck disable=SC2154 # set by run
		[[ $stderr == *"heaptap: ${option% *} is about "*"leave it out"* ]]
	done
	# Where the mode is only chosen, a limit may have been meant for what it is chosen instead of.
	TCMALLOC_SAMPLE_PARAMETER=65536 "$HEAPTAP" record --max-slowdown 10 -o p -- \
		"$WORKLOADS/linked/idle" </dev/null >out 2>log
	grep -q "^Sampler: tcmalloc's own" log
}

@test "jemalloc's samples are unbiased, allocated and in use" {
	needs_jemalloc
	is_unbiased 65536 "$WORKLOADS/jemalloc/sites.whole" MALLOC_CONF=prof:true,lg_prof_sample:16
	comments run1.0001.pb.gz | grep -q '^sampling: by jemalloc itself, by chance, one per 65536 bytes'
	comments run1.0001.pb.gz | grep -q '^losses: none'
	comments run1.0001.pb.gz | grep -q '^stacks: 100.00 % of alloc_space complete'
	pprof -raw run1.0001.pb.gz | grep -qx 'Period: 65536'
}

# sampled_all NAME OPTION...: with one sample per byte jemalloc's are all allocations.
sampled_all() {
	local name=$1
	shift

	MALLOC_CONF=prof:true,lg_prof_sample:0 "$HEAPTAP" record --max-live 100000 "$@" -o "$name" -- \
		"$WORKLOADS/jemalloc/$name.whole" >"$name.truth" 2>"$name.log"
	grep -q "^Sampler: jemalloc's own, one sample per 1 bytes" "$name.log"
	# Here jemalloc's own frames are left out, so each is a leaf. To its profiler an xallocx to the
	# size that the block has in any case is nothing: the block stays mallocx's.
	sed -i '/^below=x_\(xallocx\|mallocx\) /d; s/^below=x_/site=x_/' "$name.truth"
	matches_truth "$name.truth" "$(last_snapshot "$name")"
	comments "$(last_snapshot "$name")" | grep -q '^losses: none'
	rm "$name".*.pb.gz
}

@test "what jemalloc samples is counted and freed exactly: every function, realloc, failures" {
	needs_jemalloc
	for name in calls realloc failures api_jemalloc cxx; do
		sampled_all "$name"
		sampled_all "$name" --mode sampler --attach perf
		sampled_all "$name" --mode sampler --attach multi
	done
}

@test "what jemalloc samples in one thread and frees in another" {
	needs_jemalloc
	MALLOC_CONF=prof:true,lg_prof_sample:0 "$HEAPTAP" record -o p -- \
		"$WORKLOADS/jemalloc/threads.whole" 8000 >truth 2>log
	matches_truth truth "$(last_snapshot p)"
	comments "$(last_snapshot p)" | grep -q '^losses: none'
}

@test "a running process with jemalloc: what it has sampled before is not in use" {
	needs_jemalloc
	MALLOC_CONF=prof:true,lg_prof_sample:0 spawn idle "$WORKLOADS/jemalloc/idle.whole"
	target=$PID
	wait_for_line idle.out '^idle'
	tell idle 'a 3000000'
	wait_for_line idle.out '^done'
	attach heaptap "$target" -o p
	profiler=$PID
	grep -q "^Sampler: jemalloc's own, one sample per 1 bytes.*--mode heap" heaptap.err
	tell idle f
	tell idle 'a 5000'
	tell idle 'a 70000'
	tell idle f
	tell idle 'a 900'
	wait_for_line idle.out '^done' "$PATIENCE" 6
	kill -INT "$profiler"
	wait_exit "$profiler"
	[ "$(by_leaf "$(last_snapshot p)" alloc_space)" = 'idle_malloc 75900' ]
	[ "$(by_leaf "$(last_snapshot p)" inuse_space)" = 'idle_malloc 5900' ]
	[ "$(by_leaf "$(last_snapshot p)" inuse_objects)" = 'idle_malloc 2' ]
	comments "$(last_snapshot p)" | grep -q '^losses: none'
}

@test "jemalloc that is not told to sample is not chosen by itself; asked for, what to do is said" {
	needs_jemalloc
	"$HEAPTAP" record -o p -- "$WORKLOADS/jemalloc/idle.whole" </dev/null >out 2>log
	! grep -q '^Sampler' log
	MALLOC_CONF=prof:true,prof_active:false "$HEAPTAP" record -o p -- \
		"$WORKLOADS/jemalloc/idle.whole" </dev/null >out 2>log
	! grep -q '^Sampler' log
	"$HEAPTAP" record --mode sampler -o q -- "$WORKLOADS/jemalloc/idle.whole" </dev/null >out 2>log
	grep -q '^Sampler: .*idle.whole, .*started with MALLOC_CONF=prof:true' log
	comments "$(last_snapshot q)" | grep -q '^sampling: .* no sample so far'
}

@test "jemalloc with its symbols in a debug file, or without any" {
	needs_jemalloc
	strip -o stripped "$WORKLOADS/jemalloc/idle.whole"
	id=$(readelf -n stripped | sed -n 's/.*Build ID: //p')
	mkdir -p "debug/.build-id/${id:0:2}"
	objcopy --only-keep-debug "$WORKLOADS/jemalloc/idle.whole" "debug/.build-id/${id:0:2}/${id:2}.debug"
	export MALLOC_CONF=prof:true,lg_prof_sample:0
	"$HEAPTAP" record --debug-dir debug -o d -- ./stripped </dev/null >out 2>log
	grep -q "^Sampler: jemalloc's own, one sample per 1 bytes" log
	[ "$(by_leaf "$(last_snapshot d)" inuse_space | grep idle)" = 'idle_malloc 1048576' ]
	run "$HEAPTAP" record --mode sampler -o p -- ./stripped
	[ "$status" -eq 1 ]
	[[ "$output" == *'nothing samples in '*' or has jemalloc 5.3 with its profiler and symbols'* ]]
}

told_exactly() { # PROGRAM OPTION...
	local program=$1
	shift

	"$HEAPTAP" record "$@" -o p -- "$program" >truth 2>log
	grep -q '^Sampler: .*told tells of its samples' log
	matches_truth truth "$(last_snapshot p)"
	comments "$(last_snapshot p)" | grep -q '^sampling: as the program tells .*: 2700 samples'
	comments "$(last_snapshot p)" | grep -q '^losses: none'
	comments "$(last_snapshot p)" | grep -q '^stacks: 100.00 % of alloc_space complete'
}

@test "what a program tells of by otel_memory probes counts exactly" {
	needs_told
	told_exactly "$WORKLOADS/told"
	told_exactly "$WORKLOADS/told" --mode sampler --attach perf
	told_exactly "$WORKLOADS/told" --mode sampler --attach multi
}

@test "probes with semaphores: programs tell while somebody listens, and only then" {
	needs_told
	"$WORKLOADS/semaphores/told" | grep -q '^site=tell_small alloc_objects=0 '
	told_exactly "$WORKLOADS/semaphores/told"
	told_exactly "$WORKLOADS/semaphores/told" --attach perf
}

@test "a running process that tells" {
	needs_told
	spawn told "$WORKLOADS/semaphores/told" --wait
	target=$PID
	wait_for_line told.out '^ready'
	attach heaptap "$target" -o p
	profiler=$PID
	tell told ''
	wait_for_line told.out '^site=tell_large'
	kill -INT "$profiler"
	wait_exit "$profiler"
	matches_truth told.out "$(last_snapshot p)"
}

@test "a program that comes into the scope later" {
	needs_told
	spawn heaptap "$HEAPTAP" record --mode sampler -a -o p
	profiler=$PID
	wait_for_line heaptap.err '^Attached to all processes'
	spawn told "$WORKLOADS/told" --wait
	wait_for_line told.out '^ready'
	wait_for_line heaptap.err '^Sampler found in .*told \(loaded later\): 4 probe points'
	tell told ''
	wait_for_line told.out '^site=tell_large'
	kill -INT "$profiler"
	wait_exit "$profiler"
	matches_truth told.out "$(last_snapshot p)"
}

@test "a target that samples nothing: what was looked for, and what to do" {
	run "$HEAPTAP" record --mode sampler -o p -- "$WORKLOADS/idle"
	[ "$status" -eq 1 ]
	[[ "$output" == *'nothing samples in '*' files has USDT probes otel_memory or is gperftools'* ]]
	[[ "$output" == *'use --mode heap, or start it with LD_PRELOAD=libtcmalloc.so.4 TCMALLOC_SAMPLE_PARAMETER=524288'* ]]
	[ "$(count_snapshots p)" -eq 0 ]
}

@test "libtcmalloc_minimal has no sampler" {
	minimal=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
	[ -e "$minimal" ] || skip "needs libtcmalloc-minimal4"
	export LD_PRELOAD=$minimal TCMALLOC_SAMPLE_PARAMETER=65536
	run "$HEAPTAP" record --mode sampler -o p -- "$WORKLOADS/idle"
	unset LD_PRELOAD
	[ "$status" -eq 1 ]
	[[ "$output" == *'nothing samples in '* ]]
}

links() {
	bpftool -j link show | jq length
}

links_are() {
	[ "$(links)" = "$1" ]
}

is_untouched() { # PID FILE
	[ "$("$E2E/breakpoints.py" "$1" "$2")" -eq 0 ]
}

@test "kill -9 of heaptap leaves no probe, no semaphore and a running target" {
	needs_told
	needs_tcmalloc
	before=$(links)
	TCMALLOC_SAMPLE_PARAMETER=65536 spawn idle "$WORKLOADS/linked/idle"
	target=$PID
	wait_for_line idle.out '^idle'
	attach heaptap "$target" -o p
	run ! is_untouched "$target" libtcmalloc.so
	kill -9 "$PID"
	wait_exit "$PID" || [ $? -eq 137 ]
	poll "$PATIENCE" is_untouched "$target" libtcmalloc.so
	tell idle 'a 1000000'
	wait_for_line idle.out '^done'

	spawn told "$WORKLOADS/semaphores/told" --wait 50
	wait_for_line told.out '^ready'
	attach heaptap "$PID" -o p
	kill -9 "$PID"
	wait_exit "$PID" || [ $? -eq 137 ]
	poll "$PATIENCE" links_are "$before"
	tell told ''
	wait_for_line told.out '^site=tell_large alloc_objects=0 '
}

@test "doctor says what samples by itself" {
	needs_tcmalloc
	needs_told
	TCMALLOC_SAMPLE_PARAMETER=65536 spawn sampling "$WORKLOADS/linked/idle"
	sampling=$PID
	spawn counting "$WORKLOADS/linked/idle"
	counting=$PID
	spawn told "$WORKLOADS/told" --wait
	told=$PID
	spawn idle "$WORKLOADS/idle"
	wait_for_line sampling.out '^idle'
	wait_for_line counting.out '^idle'
	wait_for_line told.out '^ready'
	wait_for_line idle.out '^idle'
	"$HEAPTAP" doctor -p "$sampling,$counting,$told,$PID" >doctor.out
	grep -E '^  sampler ' doctor.out >samplers
	sed -n 1p samplers | grep -q "tcmalloc's own, one sample per 65536 bytes: .heaptap record. takes these"
	sed -n 2p samplers | grep -q "tcmalloc's countdown: .heaptap record --mode sampler. .*TCMALLOC_SAMPLE_PARAMETER=524288"
	sed -n 3p samplers | grep -q 'told tells of its samples'
	sed -n 4p samplers | grep -q 'none of its own'
}

@test "doctor says whether jemalloc samples" {
	needs_jemalloc
	MALLOC_CONF=prof:true,lg_prof_sample:16 spawn sampling "$WORKLOADS/jemalloc/idle.whole"
	sampling=$PID
	spawn idle "$WORKLOADS/jemalloc/idle.whole"
	wait_for_line sampling.out '^idle'
	wait_for_line idle.out '^idle'
	"$HEAPTAP" doctor -p "$sampling,$PID" >doctor.out
	grep -E '^  sampler ' doctor.out >samplers
	sed -n 1p samplers | grep -q "jemalloc's own, one sample per 65536 bytes: .heaptap record. takes these"
	sed -n 2p samplers | grep -q "jemalloc's own, which no MALLOC_CONF turns on: .*MALLOC_CONF=prof:true"
}
