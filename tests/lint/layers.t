#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Dependencies point one way, and libbpf is known to few files.
set -u
# The checks at the end of pipes count in this shell.
shopt -s lastpipe
status=0
count=0

check() { # NAME, then offending lines on standard input
	local lines
	lines=$(cat)
	count=$((count + 1))
	if [ -z "$lines" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		printf '%s\n' "$lines" | sed 's/^/# /'
		status=1
	fi
}

# Includes of FOLDER that lead to none of the allowed folders.
foreign() { # FOLDER ALLOWED...
	local folder=$1 allowed
	shift
	allowed=$(printf '%s/|' "$folder" "$@" heaptap util)
	grep -nE '^#include "' "src/$folder"/*.[ch] | grep -vE "#include \"(${allowed%|})" || true
}

foreign util | check "util includes nothing"
foreign elf | check "elf includes util"
foreign proc elf | check "proc includes elf"
foreign probe elf | check "probe includes elf"
foreign unwind elf | check "unwind includes elf"
foreign symbolize elf proc | check "symbolize includes elf and proc"
foreign profile symbolize elf | check "profile includes symbolize"
foreign output profile | check "output includes profile"

grep -lE '#include (<bpf/|"[a-z]+\.skel\.h")' src/*.[ch] src/*/*.[ch] |
	grep -vxE 'src/(kernel(_maps|_btf|_copies|_epochs|_faults|_identify|_mappings|_samplers)?|counter)\.c|src/kernel_private\.h|src/probe/attach\.c|src/unwind/upload\.c' |
	check "only kernel, counter, probe/attach and unwind/upload know libbpf"

# A stage returns its errors; commands and the session print them.
grep -lE 'log_(error|warning|info|verbose)\(|[^a-z]printf\(|fprintf\(stderr' \
	src/elf/*.c src/proc/*.c src/probe/*.c src/unwind/*.c src/symbolize/*.c src/profile/*.c 2>/dev/null |
	check "stages do not print"

for header in include/heaptap/*.h; do
	name=heaptap/${header##*/}
	grep -qrE "#include \"$name\"" bpf include/heaptap --include='*.h' --include='*.c' || echo "$name: not in bpf/"
	grep -qrE "#include \"$name\"" src include/heaptap || echo "$name: not in src/"
done | check "include/heaptap holds what both sides include"

git ls-files '*.c' '*.h' '*.cc' '*.bash' '*.bats' '*.t' '*.sh' Makefile .ci/run tests/run-test |
	xargs grep -L 'SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause' | check "every source file has its SPDX line"

git ls-files 'src/*.[ch]' 'src/*/*.[ch]' 'bpf/*' 'include/*' | xargs wc -l |
	awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines" }' | check "no file passes 600 lines"

make -s format-check 2>&1 | grep 'error:' | head -n 20 | check "clang-format has nothing to change"

git ls-files '*.bash' '*.sh' '*.t' .ci/run tests/run-test |
	xargs shellcheck -x -f gcc 2>&1 | head -n 20 | check "shellcheck has nothing to say"

echo "1..$count"
exit $status
