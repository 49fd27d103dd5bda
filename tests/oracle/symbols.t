#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# TAP: names, inlined calls, files and lines of random call sites against eu-addr2line and
# llvm-symbolizer. About 3,000 sites, or with --all 24,000.
# Usage: symbols.t [--all]
set -u

each=340
[ "${1:-}" != --all ] || each=3000
here=$(cd "$(dirname "$0")/../.." && pwd)
driver=${BUILD:-$here/build}/oracle/symbols
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Containers, templates and lambdas; and the same in Rust, with that compiler's library.
cat >"$work/own.cc" <<'END'
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>
namespace {
struct hidden {
	std::map<std::string, std::vector<int>> items;
	void add(const std::string &name, int n)
	{
		items[name].push_back(n);
	}
};
}
template <typename T> static T twice(const std::function<T(T)> &f, T x)
{
	return f(f(x));
}
int main(int argc, char **argv)
{
	auto h = std::make_shared<hidden>();
	for (int i = 0; i < argc; i++)
		h->add(argv[i], i);
	std::vector<std::string> names;
	for (auto &pair : h->items)
		names.push_back(pair.first);
	std::sort(names.begin(), names.end(), [](auto &a, auto &b) { return a > b; });
	std::regex re("a.*b");
	return std::regex_match(names[0], re) + twice<int>([&](int x) { return x + argc; }, 1);
}
END
cat >"$work/own.rs" <<'END'
use std::collections::HashMap;
fn repeat<T: Clone>(v: &T, n: usize) -> Vec<T> { vec![v.clone(); n] }
fn main() {
	let mut m: HashMap<String, Vec<u32>> = HashMap::new();
	for i in 0..100u32 {
		m.entry(format!("k{}", i)).or_insert_with(|| repeat(&i, 10)).push(i);
	}
	println!("{}", m.values().map(|v| v.len()).sum::<usize>());
}
END

number=0
status=0

# judge NAME FILE: one result; a file that is not there is skipped.
judge()
{
	local name=$1 file=$2
	number=$((number + 1))
	if [ ! -e "$file" ]; then
		echo "ok $number - $name # SKIP no '$file'"
		return
	fi
	file=$(readlink -f "$file")
	if python3 "$here/tests/oracle/symbols.py" "$driver" "$each" 1 "$file"; then
		echo "ok $number - $name"
	else
		echo "not ok $number - $name"
		status=1
	fi
}

g++ -std=gnu++17 -O2 -g "$work/own.cc" -o "$work/own-gcc"
clang++ -std=gnu++17 -O2 -g -gdwarf-4 "$work/own.cc" -o "$work/own-clang"
PATH=$PATH:$HOME/.cargo/bin rustc -g -O "$work/own.rs" -o "$work/own-rust" 2>"$work/log" ||
	echo "# no Rust program: $(head -n 1 "$work/log")"
judge "the C library, with its debug file" /lib/x86_64-linux-gnu/libc.so.6
judge "the C++ library" /usr/lib/x86_64-linux-gnu/libstdc++.so.6
judge "python, with its debug file" /usr/bin/python3.11
judge "postgres" /usr/lib/postgresql/15/bin/postgres
judge "node" "$(command -v node || echo /usr/bin/node)"
judge "LLVM" /usr/lib/x86_64-linux-gnu/libLLVM-14.so.1
judge "a C++ program by gcc, DWARF 5" "$work/own-gcc"
judge "a C++ program by clang, DWARF 4" "$work/own-clang"
judge "a Rust program" "$work/own-rust"
echo "1..$number"
exit $status
