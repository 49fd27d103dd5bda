#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# How long names take. Without lines: 10,000 distinct call sites of libLLVM, clang and the C
# library, at most 1 s. With lines: 10,000 of a program with 100 MB of DWARF, at most 5 s and 300 MB.
# Usage: symbols.bash; the driver is $BUILD/oracle/symbols.
set -euo pipefail

BUILD=$(cd "${BUILD:-build}" && pwd)
driver=$BUILD/oracle/symbols
work=$BUILD/bench/symbols
mkdir -p "$work"

# sites FILE COUNT: as the driver wants them. More are drawn, as some come twice.
sites()
{
	"$driver" sites "$1" $(($2 * 4)) 1 |
		awk -v file="$1" -v count="$2" '!seen[$1]++ && n++ < count { print file, $1 }'
}

# One file of templates over containers; the others are copies of its assembly with other names.
build_big()
{
	[ ! -e "$work/big" ] || return 0
	cat >"$work/unit.cc" <<-'END'
		#include <algorithm>
		#include <functional>
		#include <map>
		#include <memory>
		#include <sstream>
		#include <string>
		#include <unordered_map>
		#include <vector>
		namespace unit00 {
		template <int N> struct item {
			int number;
			std::string text;
			bool operator<(const item &other) const { return text < other.text; }
		};
		template <int N> std::size_t work(int n, const std::string &text)
		{
			std::map<std::string, std::vector<item<N>>> sorted;
			std::unordered_map<int, std::shared_ptr<item<N>>> shared;
			for (int i = 0; i < n; i++) {
				sorted[text + std::to_string(i)].push_back({i, text});
				shared[i] = std::make_shared<item<N>>(item<N>{i, text});
			}
			for (auto &pair : sorted)
				std::sort(pair.second.begin(), pair.second.end());
			std::ostringstream out;
			std::function<void(int)> print = [&](int k) { out << k << sorted.size(); };
			print(n);
			return out.str().size() + shared.size();
		}
		std::size_t run(int n, const std::string &text)
		{
			return work<0>(n, text) + work<1>(n, text) + work<2>(n, text) + work<3>(n, text) +
			       work<4>(n, text) + work<5>(n, text) + work<6>(n, text) + work<7>(n, text);
		}
		}
	END
	g++ -std=gnu++17 -O2 -g -S "$work/unit.cc" -o "$work/unit.s"
	{
		echo '#include <string>'
		for i in $(seq 10 "$1"); do
			echo "namespace unit$i { std::size_t run(int, const std::string &); }"
		done
		echo 'int main(int argc, char **argv) { std::size_t sum = 0;'
		for i in $(seq 10 "$1"); do
			echo "sum += unit$i::run(argc, argv[0]);"
		done
		echo 'return sum & 1; }'
	} >"$work/main.cc"
	for i in $(seq 10 "$1"); do
		sed "s/unit00/unit$i/g" "$work/unit.s" >"$work/copy.s"
		g++ -c "$work/copy.s" -o "$work/unit$i.o"
	done
	g++ "$work/main.cc" "$work"/unit??.o -o "$work/big"
	rm "$work"/unit??.o "$work/copy.s"
}

# run NAME MAX_SECONDS MAX_MB OPTION...: the sites on standard input; false if it takes more.
run()
{
	local name=$1 max_seconds=$2 max_mb=$3 result
	shift 3
	result=$("$driver" names "$@" 2>&1 >/dev/null)
	echo "$name: $result (at most $max_seconds s${max_mb:+, $max_mb MB})"
	echo "$result" | awk -F '[= ]' -v s="$max_seconds" -v m="${max_mb:-1000000}" \
		'{ exit $4 > s || $6 > m }'
}

status=0
{
	sites /usr/lib/x86_64-linux-gnu/libLLVM-14.so.1 6500
	sites /usr/lib/llvm-14/bin/clang 1500
	sites /lib/x86_64-linux-gnu/libc.so.6 2000
} >"$work/without"
run "without lines" 1 "" --no-lines <"$work/without" || status=1
build_big 46
size -A "$work/big" | awk '/\.debug_/ { sum += $2 } END { printf "DWARF: %.0f MB\n", sum / 1e6 }'
sites "$work/big" 10000 >"$work/with"
run "with lines" 5 300 <"$work/with" || status=1
exit "$status"
