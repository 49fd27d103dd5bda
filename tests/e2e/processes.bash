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

# wait_attached NAME [PATTERN]: until a heaptap in the background sees all that its scope has.
wait_attached() {
	wait_for_line "$1.err" '^Starting tracking the heap'
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
	local snapshot=$1 type wrong=0
	shift

	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		by_label_leaf "$snapshot" "$type" "${LABEL:-pid}" >"$type.measured" || return 1
		awk -v type="$type" -v living=" $* " '
			FILENAME == ARGV[1] { measured[$1 " " $2] += $3; next }
			/^process=/ {
				pid = substr($1, 9)
				processes++
				counts = type ~ /^alloc/ || index(living, " " pid " ")
			}
			/^site=/ {
				site = substr($1, 6)
				sites[site]
				for (i = 2; i <= NF; i++)
					if (counts && index($i, type "=") == 1)
						truth[pid " " site] += substr($i, length(type) + 2)
			}
			END {
				for (key in measured) {
					split(key, part, " ")
					if (part[2] in sites)
						truth[key] += 0
				}
				for (key in truth)
					if (truth[key] != measured[key] + 0) {
						printf "%s: %s is %.0f, heaptap has %.0f\n", key, type, truth[key], measured[key]
						wrong = 1
					}
				if (!processes)
					print "no truth"
				exit wrong || !processes
			}' "$type.measured" "${TRUTHS:-.}"/truth.* >&2 || wrong=1
	done
	return "$wrong"
}

# losses FILE: the comment of a snapshot about them.
losses() {
	pprof -comments "$1" | grep '^loss'
}
