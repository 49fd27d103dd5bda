#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The kernel matrix: run.bash [SERIES...], e.g. 6.1. Boots Debian's cloud kernels under QEMU with
# everything in an initramfs, and prints the TAP of guest.bash from the serial console, one subtest
# per kernel. Nothing is installed: packages are only downloaded and unpacked, into $BUILD/kernels.
#
# Emulated without KVM, so that it runs in any machine; on one thread, because 6.12 patches its own
# code in a way that QEMU's parallel TCG does not survive.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

BUILD=${BUILD:-build}
CACHE=$BUILD/kernels

# What each series may be called, newest by version order.
declare -A PACKAGES=(
	[6.1]='linux-image-6\.1\.0-[0-9]+-cloud-amd64-unsigned'
	[6.12]='linux-image-6\.12\.[0-9]+(\+deb[0-9]+)?(\+[0-9]+)?-cloud-amd64-unsigned'
)
SERIES=(6.1 6.12)
[ $# -eq 0 ] || SERIES=("$@")

# Seconds until a guest is taken for hung; a healthy one takes some 300.
WATCHDOG=${WATCHDOG:-1500}

die() {
	echo "check-kernels: $*" >&2
	exit 1
}

check_tools() {
	local tool

	for tool in qemu-system-x86_64 busybox cpio dpkg-deb apt-get; do
		[ -n "$(type -P "$tool")" ] || die "$tool is missing: run \`make deps-kernels\`"
	done
	for tool in "$BUILD/heaptap" "$BUILD/workloads/idle" "$BUILD/oracle/stacks"; do
		[ -x "$tool" ] || die "$tool is missing: run \`make check-kernels\`"
	done
}

# fetch SERIES: the newest kernel of the series that apt knows, else the newest one in the cache;
# sets RELEASE and VMLINUZ.
fetch() {
	local pattern=${PACKAGES[$1]:-} package deb

	[ -n "$pattern" ] || die "no kernel series '$1': known are ${!PACKAGES[*]}"
	package=$(apt-cache pkgnames "linux-image-$1." | grep -xE "$pattern" | sort -V | tail -n 1 || true)
	deb=$(newest_deb "$package")
	if [ -n "$package" ] && [ -z "$deb" ]; then
		# The sandbox user could not write here.
		(cd "$CACHE" && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2) || true
		deb=$(newest_deb "$package")
	fi
	[ -n "$deb" ] || deb=$(find "$CACHE" -name '*.deb' | grep -E "/${pattern}_" | sort -V | tail -n 1 || true)
	[ -n "$deb" ] || die "no package like $pattern can be downloaded: run \`apt-get update\`"
	RELEASE=${deb##*/linux-image-}
	RELEASE=${RELEASE%%-unsigned_*}
	VMLINUZ=$CACHE/vmlinuz-$RELEASE
	[ "$VMLINUZ" -nt "$deb" ] ||
		dpkg-deb --fsys-tarfile "$deb" | tar -xO "./boot/vmlinuz-$RELEASE" >"$VMLINUZ"
}

newest_deb() {
	[ -n "$1" ] && find "$CACHE" -name "$1_*.deb" | sort -V | tail -n 1
}

# add ROOT FILE [AS]: with the shared libraries it needs, at the same paths.
add() {
	local root=$1 file=$2 as=${3:-$2} library

	install -D "$file" "$root$as"
	for library in $(ldd "$file" 2>/dev/null | grep -oE '/[^ ]+'); do
		[ -e "$root$library" ] || install -D "$library" "$root$library"
	done
}

# The names of all BPF programs: functions in sections other than .text, as the kernel cuts them.
list_programs() {
	local object=$BUILD/heaptap.bpf.o text

	text=$(readelf -SW "$object" | sed -nE 's/^ *\[ *([0-9]+)\] \.text .*/\1/p')
	readelf -sW "$object" | awk -v text="$text" '
		$4 == "FUNC" && $5 == "GLOBAL" && $7 != text { print substr($8, 1, 15) }'
}

# The program with stacks that are hard to unwind, without frame pointers: add_torture ROOT.
add_torture() {
	local root=$1 to=$CACHE/torture file
	local flags=(-std=gnu++17 -pthread -O2 -fomit-frame-pointer)

	mkdir -p "$to"
	g++ "${flags[@]}" tests/workloads/torture.cc -o "$to/torture"
	g++ "${flags[@]}" -DTORTURE_STATIC -static tests/workloads/torture.cc -o "$to/torture-static"
	gcc -O2 -fPIC -shared tests/fixtures/torture_lib.c -o "$to/torture_lib.so"
	for file in torture torture-static torture_lib.so; do
		add "$root" "$to/$file" "/heaptap/build/kernels/$file"
	done
}

build_initramfs() {
	local root=$CACHE/root applet file

	rm -rf "$root"
	mkdir -p "$root"/{dev,proc,sys,tmp,root,heaptap/build/workloads,usr/{bin,sbin,lib,lib64}}
	for file in bin sbin lib lib64; do
		ln -s "usr/$file" "$root/$file"
	done
	# What the tests' helpers need beyond busybox; `true` is a child for workloads to execute.
	for file in bash ps true; do
		add "$root" "$(type -P "$file")" "/usr/bin/$file"
	done
	install -D "$(type -P busybox)" "$root/usr/bin/busybox"
	for applet in $(busybox --list); do
		[ -e "$root/usr/bin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
	done
	add "$root" "$BUILD/heaptap" /heaptap/build/heaptap
	for file in "$BUILD"/workloads/*; do
		[ ! -f "$file" ] || [ ! -x "$file" ] || add "$root" "$file" "/heaptap/build/workloads/${file##*/}"
	done
	add_torture "$root"
	add "$root" "$BUILD/oracle/stacks" /heaptap/build/oracle/stacks
	list_programs >"$root/heaptap/programs"
	${CC:-gcc} -O1 -Wall -Wextra -static tests/kernels/verified.c -o "$root/usr/bin/verified"
	install -D -m 644 tests/e2e/helpers.bash "$root/heaptap/tests/e2e/helpers.bash"
	install -D tests/kernels/guest.bash "$root/init"
	(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$CACHE/initramfs.cpio"
}

# boot VMLINUZ: its console on stdout. Becomes the emulator.
boot() {
	exec timeout -k 5 "$WATCHDOG" qemu-system-x86_64 -accel tcg,thread=single -smp 2 -m 2G \
		-nodefaults -display none -monitor none -serial stdio -no-reboot \
		-kernel "$1" -initrd "$CACHE/initramfs.cpio" \
		-append 'console=ttyS0 loglevel=4 panic=-1 panic_on_oops=1' </dev/null 2>&1
}

# Whether TAP on stdin is a plan that was kept, without failures.
passed() {
	awk '
		/^not ok / { failed = 1 }
		/^ok / { done++ }
		/^1\.\.[0-9]+\r?$/ { planned = substr($0, 4) + 0 }
		END { exit failed || !planned || done != planned }'
}

check_tools
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock -n 9 || die "another run uses $CACHE"
build_initramfs

guests=()
logs=()
trap '[ ${#guests[@]} -eq 0 ] || kill "${guests[@]}" 2>/dev/null || true' EXIT
for series in "${SERIES[@]}"; do
	fetch "$series"
	logs+=("$CACHE/$RELEASE.log")
	boot "$VMLINUZ" >"${logs[-1]}" &
	guests+=("$!")
done

# All guests run at once; they are shown one after the other, the first one as it goes.
status=0
echo "1..${#SERIES[@]}"
for i in "${!guests[@]}"; do
	release=$(basename "${logs[i]}" .log)
	echo "# Subtest: Linux $release"
	tail -n +1 -f --pid="${guests[i]}" "${logs[i]}" | sed -u 's/\r*$//; s/^/    /'
	if passed <"${logs[i]}"; then
		echo "ok $((i + 1)) - Linux $release"
	else
		echo "not ok $((i + 1)) - Linux $release"
		echo "# the guest's console: ${logs[i]}"
		status=1
	fi
done
exit "$status"
