#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What `heaptap record -a` takes itself, on a machine with PROCESSES processes that allocate, servers
# at work, and SHORT processes per second that start and end: kernel and user memory, CPU time
# between snapshots, time per snapshot. With COPIES the short ones are so many programs, different
# files each. Arguments are options of heaptap. The bounds: 128 MiB, 128 MiB, 2 %, 1 s.
#
# BUILD, DURATION, INTERVAL, PROCESSES, SHORT, COPIES, STACKS and RATE come from the environment.
set -euo pipefail

DURATION=${DURATION:-600}
INTERVAL=${INTERVAL:-60}
PROCESSES=${PROCESSES:-500}
SHORT=${SHORT:-20}
COPIES=${COPIES:-0}
# shellcheck source-path=SCRIPTDIR source=common.bash
source "$(dirname "$0")/common.bash"

# What each of the processes does, once a second.
STACKS=${STACKS:-40}
RATE=${RATE:-1}

AS_POSTGRES=(setpriv --reuid=postgres --regid=postgres --clear-groups)

# background COMMAND...: until the end.
background() {
	"$@" </dev/null >>servers.log 2>&1 8>&- &
	STARTED+=("$!")
}

# repeat SECONDS COMMAND...: again and again.
repeat() {
	local pause=$1
	shift

	while "$@" || true; do
		sleep "$pause"
	done
}

start_redis() {
	background redis-server --port 0 --unixsocket "$WORK/redis.sock" --save '' --appendonly no
	background repeat 2 redis-benchmark -s "$WORK/redis.sock" -n 500 -c 4 -q -t set,get,lpush,hset
}

start_nginx() {
	mkdir nginx
	printf '%s\n' 'daemon off; worker_processes 2; pid nginx/pid; error_log nginx/log;' \
		'events {}' "http { access_log off; server { listen unix:$WORK/nginx/sock; }}" >nginx.conf
	background nginx -p "$WORK" -e nginx/log -c nginx.conf
	background repeat 1 curl -s --unix-socket "$WORK/nginx/sock" http://localhost/
}

start_postgres() {
	local bin run

	bin=$(echo /usr/lib/postgresql/*/bin)
	run="$WORK/postgres"
	mkdir "$run"
	chown postgres "$run"
	chmod 755 "$WORK"
	"${AS_POSTGRES[@]}" "$bin/initdb" -D "$run/data" >servers.log 2>&1
	background "${AS_POSTGRES[@]}" "$bin/postgres" -D "$run/data" -k "$run" -c listen_addresses=
	until "${AS_POSTGRES[@]}" "$bin/psql" -h "$run" -c '' >>servers.log 2>&1; do
		sleep 0.2
	done
	"${AS_POSTGRES[@]}" "$bin/pgbench" -h "$run" -i -q postgres >>servers.log 2>&1
	background repeat 1 "${AS_POSTGRES[@]}" "$bin/pgbench" -h "$run" -R 10 -c 2 -T 20 postgres
}

start_interpreters() {
	background python3 -c 'import time, json
while True:
	json.dumps([{"n": i, "t": "x" * i} for i in range(1000)])
	time.sleep(1)'
	# shellcheck disable=SC2016
	background perl -e 'while (1) { my %h = map { $_ => "x" x $_ } 1..500; sleep 1 }'
	background node -e 'setInterval(() => { Buffer.alloc(1 << 20); JSON.parse(JSON.stringify(Array(9999).fill({a: 1}))) }, 1000)'
	background repeat 1 sqlite3 "$WORK/db" 'create table if not exists t(a, b);
		insert into t select random(), hex(randomblob(100)) from generate_series(1, 200); select count(*) from t order by b'
}

# short_processes: SHORT per second, of ten programs or of COPIES copies of one.
short_processes() {
	local programs=(ls\ -l\ / cat\ /etc/passwd date id "sort /etc/services" "grep -c tcp /etc/services"
		"sed -n 1p /etc/passwd" "perl -e 1" "awk 1 /etc/passwd" "bash -c true") i

	for ((i = 0; ; i++)); do
		if [ "$COPIES" -gt 0 ]; then
			"copies/$((i % COPIES))" 1 4 0 </dev/null
		else
			# shellcheck disable=SC2086
			${programs[i % ${#programs[@]}]}
		fi
		((i % SHORT)) || sleep 1 &
		((i % SHORT)) || wait "$!"
	done
}

# make_copies: with a build-id each, so that nothing about them is shared.
make_copies() {
	mkdir copies
	python3 - "$BENCH/load" "$COPIES" <<-'END'
		import os, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		at = data.index(b"GNU\0", data.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")) + 4
		for i in range(int(sys.argv[2])):
		    data[at:at + 4] = i.to_bytes(4, "little")
		    with open(f"copies/{i}", "wb") as f:
		        f.write(data)
		    os.chmod(f"copies/{i}", 0o755)
	END
}

# kernel_bytes: of the maps and programs that heaptap holds.
kernel_bytes() {
	local file

	for file in /proc/"$PROFILER"/fdinfo/*; do
		awk '$1 ~ /^(map|prog)_id:$/ { id = $1 $2 } $1 == "memlock:" { bytes = $2 }
			END { if (id != "") print id, bytes }' "$file" 2>/dev/null
	done | sort -u | awk '{ sum += $2 } END { print sum + 0 }'
}

# cpu_ns THREAD: of the threads so named, or of all.
cpu_ns() {
	local task name sum=0 ns _

	for task in /proc/"$PROFILER"/task/*; do
		{ read -r name <"$task/comm" && read -r ns _ <"$task/schedstat"; } 2>/dev/null || continue
		[ -n "${1:-}" ] && [ "$name" != "$1" ] || sum=$((sum + ns))
	done
	echo "$sum"
}

# observe: one line per second, `CPU_NS WRITER_CPU_NS TABLES_CPU_NS KERNEL_BYTES FDS RSS_KB`.
observe() {
	local end=$((SECONDS + DURATION)) kernel=0 second=0

	while [ "$SECONDS" -lt "$end" ] && kill -0 "$PROFILER" 2>/dev/null; do
		((second++ % 10)) || kernel=$(kernel_bytes)
		echo "$(cpu_ns) $(cpu_ns writer) $(cpu_ns tables) $kernel $(find "/proc/$PROFILER/fd" 2>/dev/null | wc -l)" \
			"$(awk '/^VmRSS/ { print $2 }' "/proc/$PROFILER/status")"
		sleep 1
	done >observed
	PEAK_KB=$(awk '/^VmHWM/ { print $2 }' "/proc/$PROFILER/status")
}

print_table() {
	awk -v peak="$PEAK_KB" -v seconds="$DURATION" '
		{
			if (NR > 1) {
				all += $1 - cpu
				# Seconds in which nothing is written.
				if ($2 - writer < 1e6) {
					quiet += $1 - cpu
					tables += $3 - built
					n++
				}
			}
			cpu = $1
			writer = $2
			built = $3
			if ($4 > kernel) kernel = $4
			fds = $5
			rss = $6
		}
		END {
			printf "%-34s %8.1f MiB\n", "kernel memory", kernel / 1048576
			printf "%-34s %8.1f MiB\n", "user memory, peak", peak / 1024
			printf "%-34s %8.1f MiB\n", "user memory, at the end", rss / 1024
			printf "%-34s %8.2f %%\n", "CPU between snapshots", n ? quiet / n / 1e7 : 0
			printf "%-34s %8.2f %%\n", "  of it for unwind tables", n ? tables / n / 1e7 : 0
			printf "%-34s %8.2f %%\n", "CPU, writing them included", all / (NR - 1) / 1e7
			printf "%-34s %8d\n", "file descriptors", fds
		}' observed
	sed -nE 's/^Snapshot: ([0-9]+) sites, written after ([0-9]+) ms, [0-9]+ ms of CPU$/\1 \2/p' heaptap.log |
		awk '{ if ($2 > ms) { ms = $2; sites = $1 } last = $1 } END {
			printf "%-34s %8d ms, of %d sites\n", "slowest snapshot", ms, sites
			printf "%-34s %8d\n", "sites in the last", last }'
	printf '%-34s %8d\n' 'snapshots' "$(grep -c '^Dumping' heaptap.log)"
	grep '^heaptap: warning:' heaptap.log | sort | uniq -c | sort -rn | head -n "${WARNINGS:-12}" || true
}

start_load() {
	start_target "$BENCH/load" "$((PROCESSES - 30 > 0 ? PROCESSES - 30 : 1))" "$STACKS" "$RATE"
}

[ "$COPIES" -eq 0 ] || make_copies
start_redis
start_nginx
start_postgres
start_interpreters
[ "$RATE" -eq 0 ] || start_load
"$HEAPTAP" record -v -a -o "$WORK/p" --interval "$INTERVAL" "$@" >heaptap.log 2>&1 8>&- &
PROFILER=$!
STARTED+=("$PROFILER")
wait_for heaptap.log '^Attached to ' "$PROFILER"
# All of it at once, to be seen.
[ "$RATE" -gt 0 ] || start_load
if [ "$SHORT" -gt 0 ]; then
	background short_processes
fi
observe
kill -INT "$PROFILER"
wait "$PROFILER" || true
printf '%s; %d s, %d processes and %d short ones per second\n\n' "$(machine)" "$DURATION" "$PROCESSES" "$SHORT"
print_table
[ -z "${KEEP:-}" ] || cp -r heaptap.log observed "$KEEP/"
