# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
#
# What tests of several processes use: the truths are the files truth.PID of the workload `procs`.

# by_label_leaf FILE TYPE LABEL: `VALUE FUNCTION SUM` for each value of a label and each function
# that calls the allocator; by_pid_leaf for the processes.
by_label_leaf() {
	"$E2E/pprof_labels.py" "$1" "$2" "$3"
}

by_pid_leaf() {
	by_label_leaf "$1" "$2" pid
}

# label_values FILE LABEL: what occurs, `-` for samples without it.
label_values() {
	"$E2E/pprof_labels.py" "$1" alloc_objects "$2" | awk '{ print $1 }' | sort -u
}

# wait_attached NAME: until the heaptap that was just spawned sees all that its scope has.
wait_attached() {
	poll "$PATIENCE" has_begun "$1" "$PID"
	has_lines "$1.err" '^Starting tracking the heap' 1 || {
		cat "$1.err" >&2
		return 1
	}
}

has_begun() {
	has_lines "$1.err" '^Starting tracking the heap' 1 || is_gone "$2"
}

# role_pids ROLE [FOLDER]: the processes that had it.
role_pids() {
	cat "${2:-.}"/truth.* | sed -nE "s/^process=([0-9]+) role=$1\$/\\1/p" | sort -u
}

has_role() {
	[ -n "$(role_pids "$@" 2>/dev/null)" ]
}

# processes_match SNAPSHOT PID...: each process has allocated what it says; those named had in use
# what they say, as they were the last or still live, and all others have nothing. LABEL names
# another label than pid, TRUTHS another folder.
processes_match() {
	local snapshot=$1
	shift

	by_label_leaf "$snapshot" alloc_objects,alloc_space,inuse_objects,inuse_space \
		"${LABEL:-pid}" >measured || return 1
	awk -v living=" $* " '
		BEGIN { count = split("alloc_objects alloc_space inuse_objects inuse_space", types, " ") }
		FILENAME == ARGV[1] {
			for (i = 1; i <= count; i++)
				found[$1 " " $2 " " types[i]] += $(2 + i)
			next
		}
		/^process=/ {
			pid = substr($1, 9)
			processes++
		}
		/^site=/ {
			site = substr($1, 6)
			sites[site]
			for (i = 2; i <= NF; i++) {
				split($i, field, "=")
				if (field[1] ~ /^alloc/ || index(living, " " pid " "))
					truth[pid " " site " " field[1]] += field[2]
			}
		}
		END {
			# Also what should not be there.
			for (key in found) {
				split(key, part, " ")
				if (part[2] in sites)
					truth[key] += 0
			}
			for (key in truth)
				if (truth[key] != found[key] + 0) {
					printf "%s should be %.0f, heaptap has %.0f\n", key, truth[key], found[key]
					wrong = 1
				}
			if (!processes)
				print "no truth"
			exit wrong || !processes
		}' measured "${TRUTHS:-.}"/truth.* >&2
}

# losses FILE: the comment of a snapshot about them.
losses() {
	pprof -comments "$1" | grep '^loss'
}

# map_id NAME: of a map that the process $profiler holds.
map_id() {
	sed -n 's/^map_id:[[:space:]]*//p' "/proc/${profiler:?}"/fdinfo/* | sort -u |
		while read -r id; do bpftool map show id "$id" -j; done |
		jq -r --arg name "$1" 'select(.name == $name) | .id'
}

# bss_sum VARIABLE: of the kernel side, all its elements.
bss_sum() {
	bpftool map dump id "$(map_id heaptap_.bss)" -j |
		jq --arg name "$1" '[.. | objects | .[$name]? // empty | numbers, arrays[]] | add'
}

# map_has NAME COUNT: so many entries.
map_has() {
	[ "$(bpftool map dump id "$(map_id "$1")" -j | jq length)" -eq "$2" ]
}
