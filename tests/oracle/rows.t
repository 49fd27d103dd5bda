#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# TAP: unwind rows against libdw, over a sample of the machine's ELF files, or with --all over all.
# Usage: rows.t [--all] [FOLDER...]; the judge is ROWS_LIBDW, or build/oracle/rows_libdw.
set -u

sample=400
if [ "${1:-}" = --all ]; then
	sample=1000000
	shift
fi
[ $# -gt 0 ] || set -- /usr/lib/x86_64-linux-gnu /usr/bin
here=$(cd "$(dirname "$0")/../.." && pwd)
judge=${ROWS_LIBDW:-$here/build/oracle/rows_libdw}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Programs and libraries by their header: 64-bit, little endian, ET_EXEC or ET_DYN, x86-64. Links
# are not followed, so each file comes once. A sample is spread evenly: the same on every run.
find "$@" -xdev -type f -size +1k -print0 2>/dev/null | sort -z |
	perl -0ne 'chomp; open my $f, "<", $_ or next; read $f, my $head, 20;
		push @files, "$_\0" if substr($head, 0, 6) eq "\x7fELF\x02\x01" &&
			pack("v", 62) eq substr($head, 18, 2) && unpack("x16v", $head) =~ /^[23]$/;
		END { $n = '$sample' < @files ? '$sample' : @files;
			print $files[$_ * @files / $n] for 0 .. $n - 1 }' > "$work/files"
wanted=$(tr -cd '\0' < "$work/files" | wc -c)
if [ "$wanted" = 0 ]; then
	echo "1..0 # SKIP no ELF files in $*"
	exit 0
fi

# sum NAME: of NAME=N over all runs of the judge
sum()
{
	grep -ho "\\b$1=[0-9]*" "$work"/out.* | awk -F = '{ n += $2 } END { print n + 0 }'
}

# result NUMBER DESCRIPTION CONDITION...
result()
{
	local number=$1 description=$2

	shift 2
	if [ "$@" ]; then
		echo "ok $number - $description"
	else
		echo "not ok $number - $description"
		failed=1
	fi
}

# The judge's own status is 1 for a difference, which is counted below; more is a crash.
# shellcheck disable=SC2016
OUT=$work/out xargs -0 -n 50 -P "$(nproc)" sh -c '"$0" "$@" > "$OUT.$$" 2>&1; [ $? -le 1 ] || echo crashed=1 >> "$OUT.$$"' \
	"$judge" < "$work/files" 2>/dev/null

failed=0
echo "1..3"
result 1 "$wanted files are judged" $(($(sum files) + $(sum no_table))) = "$wanted"
result 2 "no rule differs at a call site" "$(sum differing)" = 0
result 3 "no judge crashed" "$(sum crashed)" = 0
echo "# files=$(sum files) rows=$(sum rows) callsites=$(sum callsites) differing=$(sum differing)"
echo "# rows between call sites: differing=$(sum other_rows_differing) unanswered=$(sum other_rows_unanswered)"
grep -h '^[0-9]*: ' "$work"/out.* | awk -F ': ' '{ n[$2] += $1 } END { for (r in n) print "# " n[r] " " r }'
[ $failed = 0 ] || grep -h -e '(all rows)' -e '(call sites)' -e ': [A-Z]' "$work"/out.* | head -50 | sed 's/^/# /'
exit $failed
