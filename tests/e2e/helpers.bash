# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
#
# What every end-to-end test uses. A test runs in a folder of its own, waits for lines that
# programs print instead of for time to pass, and ends what it started by PID.

bats_require_minimum_version 1.5.0

E2E=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=${BUILD:-build}
BUILD=$(cd "$BUILD" && pwd)
HEAPTAP=$BUILD/heaptap
WORKLOADS=$BUILD/workloads
export E2E HEAPTAP WORKLOADS

# Seconds that something may take that should be at once: only a hang gets there.
PATIENCE=30

setup() {
	begin_test
}

teardown() {
	end_test
}

begin_test() {
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	unset "${!HEAP_PROFILE_@}" TCMALLOC_SAMPLE_PARAMETER
	cd "$BATS_TEST_TMPDIR" || return 1
	STARTED=()
	MOUNTED=()
}

end_test() {
	local pid point

	for pid in "${STARTED[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	for point in "${MOUNTED[@]}"; do
		umount -l "$point"
	done
}

# spawn NAME COMMAND...: in the background, with NAME.in (kept open), NAME.out and NAME.err; sets
# PID. File descriptor 3 is bats' own and would make it wait for the program.
spawn() {
	local name=$1 fd old=FD_$1
	shift
	old=${!old:-}
	[ -z "$old" ] || exec {old}>&-
	rm -f "$name.in"
	mkfifo "$name.in"
	exec {fd}<>"$name.in"
	: >"$name.out"
	: >"$name.err"
	"$@" <"$name.in" >"$name.out" 2>"$name.err" 3>&- {fd}>&- &
	PID=$!
	STARTED+=("$PID")
	printf -v "FD_$name" %d "$fd"
}

# tell NAME LINE: to the stdin of a spawned program.
tell() {
	local fd=FD_$1

	printf '%s\n' "$2" >&"${!fd}"
}

# poll SECONDS COMMAND...: until it succeeds.
poll() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "gave up waiting for: $*" >&2
			return 1
		fi
		sleep 0.02
	done
}

# wait_for_line FILE PATTERN [SECONDS [COUNT]]: until so many lines match.
wait_for_line() {
	poll "${3:-$PATIENCE}" has_lines "$1" "$2" "${4:-1}" && return
	echo "--- $1:" >&2
	cat "$1" >&2
	return 1
}

has_lines() {
	[ "$(grep -cE -- "$2" "$1")" -ge "$3" ]
}

is_gone() {
	[ ! -e "/proc/$1" ] || [ "$(ps -o stat= -p "$1" | cut -c1)" = Z ]
}

# wait_exit PID: returns its exit status.
wait_exit() {
	poll "$PATIENCE" is_gone "$1" || return 124
	wait "$1"
}

# attach NAME PID OPTION...: a heaptap in the background that is ready; sets PID to its own.
attach() {
	local name=$1 target=$2
	shift 2
	spawn "$name" "$HEAPTAP" record -p "$target" "$@"
	wait_for_line "$name.err" "^Attached to $target \\("
}

# reasons FILE: what stands in brackets in heaptap's lines about its snapshots.
reasons() {
	sed -nE 's/^Dumping heap profile to .* \((.*)\)$/\1/p' "$1"
}

count_snapshots() {
	find "$(dirname "$1")" -maxdepth 1 -name "$(basename "$1").[0-9]*.pb.gz" | wc -l
}

last_snapshot() {
	find "$(dirname "$1")" -maxdepth 1 -name "$(basename "$1").[0-9]*.pb.gz" | sort | tail -n 1
}

# by_leaf FILE TYPE: `FUNCTION VALUE` for each function that calls the allocator.
by_leaf() {
	# %.0f because mawk's %d ends at 2^31.
	"$HEAPTAP" report --folded --sample-index "$2" "$1" | awk '
		{
			value = $NF
			sub(/ [^ ]*$/, "")
			sub(/.*;/, "")
			sum[$0] += value
		}
		END { for (leaf in sum) printf "%s %.0f\n", leaf, sum[leaf] }'
}

# matches_truth OUTPUT SNAPSHOT: every site of a workload, in all four values. MEASURE names
# another function than by_leaf.
matches_truth() {
	local type wrong=0

	has_lines "$1" '^site=' 1 || {
		echo "no truth in $1" >&2
		return 1
	}
	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		"${MEASURE:-by_leaf}" "$2" "$type" >"$type.measured" || return 1
		awk -v type="$type" '
			FILENAME == ARGV[1] { measured[$1] = $2; next }
			/^site=/ {
				site = $1
				sub(/^site=/, "", site)
				for (i = 2; i <= NF; i++)
					if (index($i, type "=") == 1)
						truth = substr($i, length(type) + 2)
				if (measured[site] + 0 != truth + 0) {
					printf "%s: %s is %.0f, heaptap has %.0f\n", site, type, truth, measured[site]
					wrong = 1
				}
			}
			END { exit wrong }' "$type.measured" "$1" >&2 || wrong=1
	done
	return "$wrong"
}

# pprof ARGUMENT...: without fetching or guessing anything.
pprof() {
	go tool pprof -symbolize=none "$@" 2>pprof.err || {
		cat pprof.err >&2
		return 1
	}
}

# readable PROGRAM FILE...: pprof reads the files in all ways, and mapping 0 is the program.
readable() {
	local program file
	program=$(realpath "$1")
	shift
	[ $# -gt 0 ] || return 1
	for file in "$@"; do
		pprof -top "$file" >pprof.top || return 1
		pprof -traces "$file" >pprof.traces || return 1
		pprof -raw "$file" >pprof.raw || return 1
		awk -v program="$program" '
			mappings { exit $3 != program }
			/^Mappings$/ { mappings = 1 }
			END { if (!mappings) exit 1 }' pprof.raw || {
			echo "$file: mapping 0 is not $program" >&2
			sed -n '/^Mappings$/,$p' pprof.raw >&2
			return 1
		}
	done
}

# row FUNCTION: `FLAT CUM` of one function in pprof's or heaptap's table on stdin.
row() {
	awk -v name="$1" '$6 == name { print $1, $4 }'
}

# mount_small FOLDER SIZE: a file system of its own.
mount_small() {
	mkdir -p "$1"
	mount -t tmpfs -o "size=$2" tmpfs "$1"
	MOUNTED+=("$1")
}

# same_stacks TRUTH SNAPSHOT [any]: every stack as the program says. One that is marked as early may
# be cut, if it is right as far as it goes and says why; with `any`, every one may, for any reason.
same_stacks() {
	"${STACKS:-$E2E/pprof_stacks.py}" "$2" >stacks || return 1
	awk -v any="${3:-}" '
		NR == FNR {
			if (!(($2 " " $3) in missing))
				want[$2] = want[$2] $3 "\n"
			early[$2] = any || $1 ~ /_early$/
			name[$2] = $1
			missing[$2 " " $3] = 1
			next
		}
		!($1 in want) { next }
		{
			stack = $2
			if (early[$1] && sub(/;\[cut:_[^;]*(not_built_yet|interrupted_between_calls)[^;]*\]$/, ";", stack) ||
			    any && sub(/;\[cut:_[^;]*\]$/, ";", stack))
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
