#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Exact mode under every allocator and every way to come by one: what the programs say about
# themselves, per site, in objects and bytes. The sessions of a test run side by side.

# shellcheck disable=SC2030,SC2031 # each test is a subshell, with variables of its own
load helpers

LIBRARIES=/usr/lib/x86_64-linux-gnu
SCUDO=/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.scudo_standalone-x86_64.so

# Each with its arguments.
C_PROGRAMS=("calls" "realloc" "failures" "threads 8000" "churn 100")
ALL_PROGRAMS=("${C_PROGRAMS[@]}" "cxx")

# A test's own options.
EXTRA=()

# needs FILE...: or the test cannot run here.
needs() {
	local file

	for file in "$@"; do
		[ -e "$file" ] || skip "needs $file"
	done
}

# by_site FILE TYPE TRUTH: `FUNCTION VALUE` for each site of a program; a stack belongs to the site
# that is nearest to the allocator.
by_site() {
	"$HEAPTAP" report --folded --sample-index "$2" "$1" | awk '
		FILENAME == ARGV[1] {
			if (sub(/^(site|below)=/, ""))
				site[$1]
			next
		}
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			for (i = split($0, frames, ";"); i > 0; i--) {
				if (frames[i] in site) {
					sum[frames[i]] += value
					break
				}
			}
		}
		END { for (frame in sum) printf "%s %.0f\n", frame, sum[frame] }' "$3" -
}

# matches_below OUTPUT SNAPSHOT: the sites that have other functions between them and the allocator.
# Of exceptions only the number is known; that they are small is enough.
matches_below() {
	local type wrong=0

	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		by_site "$2" "$type" "$1" >"$type.below" || return 1
		awk -v type="$type" '
			FILENAME == ARGV[1] { measured[$1] = $2; next }
			/^below=/ {
				site = $1
				sub(/^below=/, "", site)
				truth = "small"
				for (i = 2; i <= NF; i++)
					if (index($i, type "=") == 1)
						truth = substr($i, length(type) + 2)
				if (truth == "small" ? measured[site] + 0 > 10000 : measured[site] + 0 != truth + 0) {
					printf "below %s: %s is %s, heaptap has %.0f\n", site, type, truth, measured[site]
					wrong = 1
				}
			}
			END { exit wrong }' "$type.below" "$1" >&2 || wrong=1
	done
	return "$wrong"
}

# matches NAME TRUTH: NAME.NNNN.pb.gz is what the program said; the log is shown if not.
matches() {
	local wrong=0 snapshot
	snapshot=$(last_snapshot "$1")

	if [ -z "$snapshot" ] || ! grep -qE '^(site|below)=' "$2"; then
		echo "$1: no snapshot, or no truth:" >&2
		cat "$1.log" >&2
		return 1
	fi
	if grep -q '^site=' "$2"; then
		matches_truth "$2" "$snapshot" || wrong=1
	fi
	if grep -q '^below=' "$2"; then
		matches_below "$2" "$snapshot" || wrong=1
	fi
	[ "$wrong" -eq 0 ] || {
		echo "$1 is wrong:" >&2
		cat "$1.log" >&2
	}
	return "$wrong"
}

# commands VARIANT LIBRARY WORKLOAD...: records them as commands, all at once. The library is
# preloaded into heaptap, whose environment the command gets; either may be empty.
commands() {
	local variant=$1 library=$2 workload name wrong=0
	local -A pids=()
	local -a words
	shift 2

	for workload in "$@"; do
		read -ra words <<<"$workload"
		name=${words[0]}
		LD_PRELOAD=$library "$HEAPTAP" record --sample-bytes 1 --max-live 100000 "${EXTRA[@]}" -o "$name" -- \
			"$WORKLOADS/$variant$name" "${words[@]:1}" >"$name.truth" 2>"$name.log" 3>&- &
		pids[$name]=$!
		STARTED+=("$!")
	done
	for name in "${!pids[@]}"; do
		wait_exit "${pids[$name]}" || {
			echo "$name ended with status $?:" >&2
			cat "$name.log" >&2
			wrong=1
			continue
		}
		matches "$name" "$name.truth" || wrong=1
	done
	return "$wrong"
}

# attached VARIANT LIBRARY WORKLOAD...: the same for processes that run already.
attached() {
	local variant=$1 library=$2 workload name wrong=0
	local -A pids=()
	local -a words
	shift 2

	for workload in "$@"; do
		read -ra words <<<"$workload"
		name=${words[0]}
		spawn "$name" env LD_PRELOAD="$library" "$WORKLOADS/$variant$name" --wait "${words[@]:1}"
		pids[$name]=$PID
	done
	for name in "${!pids[@]}"; do
		wait_for_line "$name.out" '^ready'
		spawn "heaptap_$name" "$HEAPTAP" record --sample-bytes 1 --max-live 100000 "${EXTRA[@]}" -o "$name" -p "${pids[$name]}"
		ln -s "heaptap_$name.err" "$name.log"
		pids[$name]=$PID
	done
	for name in "${!pids[@]}"; do
		wait_for_line "$name.log" '^Starting tracking' || wrong=1
		tell "$name" go
	done
	for name in "${!pids[@]}"; do
		wait_for_line "$name.out" '^(site|below)=' || wrong=1
		tell "$name" end
		wait_exit "${pids[$name]}" || wrong=1
		matches "$name" "$name.out" || wrong=1
	done
	return "$wrong"
}

preloaded() {
	[ -z "$1" ] || needs "$1"
	"${2:-commands}" "" "$1" "${ALL_PROGRAMS[@]}"
}

@test "glibc: commands" {
	preloaded ""
}

@test "glibc: processes" {
	preloaded "" attached
}

@test "tcmalloc: commands" {
	preloaded "$LIBRARIES/libtcmalloc.so.4"
}

@test "tcmalloc: processes" {
	preloaded "$LIBRARIES/libtcmalloc.so.4" attached
}

@test "tcmalloc_minimal: commands" {
	preloaded "$LIBRARIES/libtcmalloc_minimal.so.4"
}

@test "tcmalloc_minimal: processes" {
	needs "$LIBRARIES/libtcmalloc_minimal.so.4"
	attached "" "$LIBRARIES/libtcmalloc_minimal.so.4" calls cxx
}

@test "jemalloc: commands" {
	preloaded "$LIBRARIES/libjemalloc.so.2"
}

@test "jemalloc: processes" {
	preloaded "$LIBRARIES/libjemalloc.so.2" attached
}

@test "mimalloc: commands" {
	preloaded "$LIBRARIES/libmimalloc.so.2"
}

@test "mimalloc: processes" {
	preloaded "$LIBRARIES/libmimalloc.so.2" attached
}

@test "scudo: commands" {
	preloaded "$SCUDO"
}

@test "scudo: processes" {
	preloaded "$SCUDO" attached
}

@test "an allocator that nobody knows, with C23's sized frees" {
	commands "" "$WORKLOADS/lib/own.so" "${ALL_PROGRAMS[@]}"
	grep -qE '^site=call_free_sized alloc_objects=10 .* inuse_objects=0 ' calls.truth
	grep -qE '^site=call_free_aligned_sized alloc_objects=10 .* inuse_objects=0 ' calls.truth
}

@test "an allocator that cuts aligned blocks out of malloc's" {
	commands "" "$WORKLOADS/lib/cut.so" "${ALL_PROGRAMS[@]}"
}

@test "every way to attach" {
	local mode

	needs "$LIBRARIES/libmimalloc.so.2" "$LIBRARIES/libtcmalloc.so.4"
	for mode in perf multi session; do
		EXTRA=(--attach "$mode")
		commands "" "$LIBRARIES/libmimalloc.so.2" calls cxx
		rm -f -- *.pb.gz
		commands "" "$LIBRARIES/libtcmalloc.so.4" calls cxx
		rm -f -- *.pb.gz
	done
}

@test "musl, dynamic" {
	needs "$WORKLOADS/musl/calls"
	commands musl/ "" "${C_PROGRAMS[@]}"
}

@test "musl, dynamic: processes" {
	needs "$WORKLOADS/musl/calls"
	attached musl/ "" "${C_PROGRAMS[@]}"
}

@test "musl, static" {
	needs "$WORKLOADS/musl-static/calls"
	commands musl-static/ "" "${C_PROGRAMS[@]}"
}

@test "glibc, static" {
	commands static/ "" "${ALL_PROGRAMS[@]}"
}

# has_only_dynamic_names PROGRAM: the allocator's, that is.
has_only_dynamic_names() {
	nm -D "$1" | grep -qE ' [TW] malloc$'
	run ! grep -qE ' (malloc|free|je_malloc|tc_malloc|_Znwm)$' <(nm "$1")
}

@test "tcmalloc linked into a stripped program" {
	needs "$WORKLOADS/tcmalloc/calls"
	has_only_dynamic_names "$WORKLOADS/tcmalloc/calls"
	commands tcmalloc/ "" "${ALL_PROGRAMS[@]}"
}

@test "jemalloc linked into a stripped program" {
	needs "$WORKLOADS/jemalloc/calls"
	has_only_dynamic_names "$WORKLOADS/jemalloc/calls"
	commands jemalloc/ "" "${ALL_PROGRAMS[@]}"
}

@test "an allocator in a program that lld has linked" {
	commands lld/ "" cxx
}

@test "an allocator in a program that lld has linked, in a process" {
	attached lld/ "" cxx
}

@test "glibc, static and stripped: by the archive's code" {
	needs "$LIBRARIES/libc.a"
	run ! grep -qE ' (malloc|free|__libc_malloc)$' <(nm "$WORKLOADS/static-stripped/calls")
	EXTRA=(--signatures-from "$LIBRARIES/libc.a")
	commands static-stripped/ "" calls
}

@test "musl, static and stripped: by the archive's code" {
	needs "$WORKLOADS/musl-static-stripped/calls" /usr/lib/x86_64-linux-musl/libc.a
	run ! grep -qE ' (malloc|free|__libc_malloc)$' <(nm "$WORKLOADS/musl-static-stripped/calls")
	EXTRA=(--signatures-from /usr/lib/x86_64-linux-musl/libc.a)
	# Wrappers have no names there, so that they cannot be told from the program's functions.
	# shellcheck disable=SC2317,SC2329
	by_calls() { by_site "$1" "$2" calls.truth; }
	MEASURE=by_calls
	commands musl-static-stripped/ "" calls
}

@test "operators that a program replaces" {
	commands "" "" cxx_replaced
}

@test "operators that a program replaces, over tcmalloc" {
	needs "$LIBRARIES/libtcmalloc.so.4"
	commands "" "$LIBRARIES/libtcmalloc.so.4" cxx_replaced
}

@test "operators that are the allocator" {
	commands "" "" cxx_pool
}

@test "operators that are the allocator, beside jemalloc" {
	needs "$LIBRARIES/libjemalloc.so.2"
	commands "" "$LIBRARIES/libjemalloc.so.2" cxx_pool
}

@test "jemalloc's own functions" {
	needs "$WORKLOADS/api_jemalloc"
	commands "" "" api_jemalloc
}

@test "mimalloc's own functions" {
	needs "$WORKLOADS/api_mimalloc"
	commands "" "" api_mimalloc
}

@test "tcmalloc's own functions" {
	needs "$WORKLOADS/api_tcmalloc"
	commands "" "" api_tcmalloc
}

@test "libc's malloc and another allocator: je_" {
	commands je/ "" prefixed
}

@test "libc's malloc and another allocator: _rjem_" {
	commands _rjem/ "" prefixed
}

@test "libc's malloc and another allocator: mi_" {
	needs "$WORKLOADS/mi/prefixed"
	commands mi/ "" prefixed
}

@test "libc's malloc and another allocator: tc_" {
	needs "$WORKLOADS/tc/prefixed"
	commands tc/ "" prefixed
}

@test "libc's malloc and another allocator: a prefix that the user gives" {
	EXTRA=(--symbol-prefix acme_)
	commands acme/ "" prefixed
}

@test "libc's malloc and another allocator, in a process" {
	attached je/ "" prefixed
}

@test "a library in front of malloc that jumps to it" {
	commands "" "$WORKLOADS/lib/forward_jump.so" "${ALL_PROGRAMS[@]}" forwarded
}

@test "a library in front of malloc that calls it" {
	commands "" "$WORKLOADS/lib/forward_call.so" "${ALL_PROGRAMS[@]}" forwarded
}

@test "a library in front of malloc that gives each block a header" {
	commands "" "$WORKLOADS/lib/forward_header.so" forwarded
}

@test "a library in front of tcmalloc" {
	needs "$LIBRARIES/libtcmalloc.so.4"
	commands "" "$WORKLOADS/lib/forward_call.so:$LIBRARIES/libtcmalloc.so.4" calls forwarded
}

@test "a library bound to libc's malloc in a program with tcmalloc" {
	needs "$LIBRARIES/libtcmalloc.so.4"
	attached "" "$LIBRARIES/libtcmalloc.so.4" "deepbind $WORKLOADS/lib/deepbind.so"
}

@test "exceptions leave operator new, whoever allocates and however probes are placed" {
	local library mode

	for library in "$LIBRARIES/libtcmalloc.so.4" "$LIBRARIES/libtcmalloc_minimal.so.4" "$LIBRARIES/libjemalloc.so.2"; do
		needs "$library"
		for mode in session multi perf; do
			EXTRA=(--attach "$mode")
			rm -f throws.*
			commands "" "$library" throws
			run ! grep -q throw_late throws.log
			grep -q '^[^ ]*throws exited with status 0' throws.log
		done
	done
}

@test "exceptions leave operator new in a process that has another unwinder" {
	local name

	needs "$LIBRARIES/libtcmalloc.so.4" "$LIBRARIES/libgcc_s.so.1"
	mkdir other
	cp "$LIBRARIES/libgcc_s.so.1" other/
	spawn one env LD_PRELOAD="$LIBRARIES/libtcmalloc.so.4" "$WORKLOADS/throws" --wait
	ONE=$PID
	spawn two env LD_PRELOAD="$LIBRARIES/libtcmalloc.so.4" LD_LIBRARY_PATH="$PWD/other" "$WORKLOADS/throws" --wait
	TWO=$PID
	wait_for_line one.out '^ready'
	wait_for_line two.out '^ready'
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 --max-live 100000 -o both -p "$ONE,$TWO"
	wait_for_line heaptap.err '^Starting tracking'
	for name in one two; do
		tell "$name" go
		wait_for_line "$name.out" '^(site|below)='
		tell "$name" end
	done
	wait_exit "$ONE"
	wait_exit "$TWO"
	wait_exit "$PID"
}
