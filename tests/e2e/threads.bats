#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# --label-threads: every block is the thread's that allocated it, by the name it had then.

load helpers
load processes

# by_thread FILE TYPE: `NAME VALUE` of what the workload `named` has allocated.
by_thread() {
	by_label_leaf "$1" "$2" thread |
		awk '$2 ~ /^named_(malloc|realloc)$/ { sum[$1] += $3 } END { for (name in sum) print name, sum[name] }'
}

# record_named FOLDER OPTION...: the workload, and whether all values are as it says.
record_named() {
	local folder=$1
	shift
	mkdir "$folder"
	"$HEAPTAP" record --sample-bytes 1 --label-threads -o "$folder/p" "$@" -- "$WORKLOADS/named" \
		>"$folder/truth" 2>"$folder/log"
	MEASURE=by_thread matches_truth "$folder/truth" "$folder/p.0001.pb.gz"
	losses "$folder/p.0001.pb.gz" | grep -qx 'losses: none'
}

@test "each thread has what it allocated, whoever frees it, in every attach mode" {
	for mode in session multi perf; do
		record_named "$mode" --attach "$mode"
		# No name that no thread had; the first thread has the program's.
		{
			sed -nE 's/^site=([^ ]*) .*/\1/p' "$mode/truth"
			echo named
		} | sort -u >want
		diff want <(label_values "$mode/p.0001.pb.gz" thread)
	done
}

@test "only when it is asked for" {
	"$HEAPTAP" record --sample-bytes 1 -o p -- "$WORKLOADS/named" >truth 2>log
	[ "$(label_values p.0001.pb.gz thread)" = - ]
	"$HEAPTAP" report --folded --sample-index alloc_objects p.0001.pb.gz >without
	record_named with
	"$HEAPTAP" report --folded --sample-index alloc_objects with/p.0001.pb.gz | sort >with.folded
	# The label divides values, and changes no sum.
	sort without | cmp - with.folded
}

@test "attached by PID, with snapshots between" {
	spawn named "$WORKLOADS/named" --wait
	wait_for_line named.out '^ready'
	attach heaptap "$PID" --sample-bytes 1 --label-threads --alloc-interval 10000 -o p
	tell named go
	wait_for_line named.out '^site='
	tell named end
	wait_exit "$PID"
	[ "$(count_snapshots p)" -gt 10 ]
	MEASURE=by_thread matches_truth named.out "$(last_snapshot p)"
	for snapshot in p.*.pb.gz; do
		run ! grep -qxF -e - -e '(other)' <(label_values "$snapshot" thread)
	done
}

@test "pprof selects threads, and differences keep them" {
	record_named one
	pprof -raw -tagfocus 'thread=^io$' one/p.0001.pb.gz | awk '
		/^Locations$/ { exit }
		$4 ~ /^[0-9]+:$/ { sum += $1 }
		END { print sum }' >measured
	# Three threads.
	[ "$(cat measured)" -eq 300 ]
	pprof -tags one/p.0001.pb.gz | grep -A 12 '^ *thread:' >tags
	grep -q ': worker-1$' tags
	"$HEAPTAP" report --base one/p.0001.pb.gz one/p.0001.pb.gz >diff
	run ! grep -qE '^ *[1-9-].* named_malloc$' diff
}

@test "sampled, the names are right and the sums near" {
	"$HEAPTAP" record --sample-bytes 1000 --label-threads -o p -- "$WORKLOADS/named" >truth 2>log
	run ! grep -qxF -e - -e '(other)' <(label_values p.0001.pb.gz thread)
	[ "$(by_thread p.0001.pb.gz alloc_space | awk '$1 == "(unnamed)" { print ($2 - 80000) ^ 2 < 40000 ^ 2 }')" = 1 ]
}

@test "names beyond 4096 are a loss, and add up" {
	"$HEAPTAP" record --sample-bytes 1 --label-threads -o p -- "$WORKLOADS/named" 5000 2>log
	by_label_leaf p.0001.pb.gz alloc_objects,inuse_space thread | awk '$2 == "many_malloc"' >measured
	# The first is the program's own.
	awk '
		$1 == "(other)" { other = $3; next }
		$3 != 2 || $4 != 200 || $1 !~ /^name-[0-9]+$/ { print; wrong = 1 }
		{ names++ }
		END { print names, other; exit wrong || names != 4095 || other != 2 * 905 }' measured
	losses p.0001.pb.gz | grep -q '^loss: thread_full 1810 (181000 bytes): '
	grep -q '1810 times (181000 bytes) thread_full: allocations labelled with the thread "(other)"' log
}

@test "one series of files for each process, and threads in all of them" {
	timeout 60 "$HEAPTAP" record --follow --split --sample-bytes 1 --label-threads -o p -- \
		bash -c "'$WORKLOADS/named' >one; '$WORKLOADS/named' >two; true" 2>log
	found=0
	for snapshot in p.*.pb.gz; do
		label_values "$snapshot" comm | grep -qx named || continue
		MEASURE=by_thread matches_truth one "$snapshot"
		found=$((found + 1))
	done
	[ "$found" -eq 2 ]
}

@test "redis-server's own threads" {
	command -v redis-server >/dev/null || skip "redis-server is not installed"
	spawn redis redis-server --port 0 --unixsocket redis.sock --save '' --appendonly no --io-threads 4
	server=$PID
	wait_for_line redis.out 'ready to accept connections'
	attach heaptap "$server" --sample-bytes 1 --label-threads -o p
	profiler=$PID
	redis-cli -s redis.sock debug populate 20000 key 100 >out
	redis-cli -s redis.sock eval 'for i=1,5000 do redis.call("rpush","list"..(i%7),string.rep("x",i%900)) end' 0 >out
	# Freed in the background: by the thread bio_lazy_free.
	redis-cli -s redis.sock unlink list0 list1 list2 list3 list4 list5 list6 >out
	redis-cli -s redis.sock flushall async >out
	poll "$PATIENCE" lazily_freed
	kill -INT "$profiler"
	wait_exit "$profiler"
	label_values p.0001.pb.gz thread >names
	grep -qx redis-server names
	run ! grep -qx -e - -e '(other)' names
	# What it allocated is its own, and not in use any more, who ever has freed it.
	by_label_leaf p.0001.pb.gz alloc_space,inuse_space thread | awk '
		{ alloc[$1] += $3; inuse[$1] += $4 }
		END {
			for (name in alloc)
				print name, alloc[name], inuse[name]
			exit alloc["redis-server"] < 2000000 || inuse["redis-server"] > alloc["redis-server"] / 2
		}'
}

lazily_freed() {
	[ "$(redis-cli -s redis.sock info memory | tr -d '\r' | sed -n 's/^lazyfree_pending_objects://p')" = 0 ]
}

@test "java: direct buffers of threads that have ended" {
	command -v java >/dev/null || skip "java is not installed"
	java --list-modules | grep -q '^jdk.compiler' || skip "java cannot run source files"
	cat >Pool.java <<-'END'
		import java.nio.ByteBuffer;

		public class Pool {
			static ByteBuffer[] kept = new ByteBuffer[400];

			public static void main(String[] args) throws Exception {
				Thread[] threads = new Thread[4];
				for (int i = 0; i < 4; i++) {
					int n = i;
					threads[i] = new Thread(() -> {
						for (int j = 0; j < 100; j++)
							kept[n * 100 + j] = ByteBuffer.allocateDirect(10000 * (n + 1));
					}, "pool " + i);
					threads[i].start();
				}
				for (Thread thread : threads)
					thread.join();
			}
		}
	END
	timeout 120 "$HEAPTAP" record --sample-bytes 1 --label-threads -o p -- java Pool.java >out 2>log
	# Beside the buffers a thread of Java has a little for itself.
	by_label_leaf "$(last_snapshot p)" inuse_space thread | awk '
		/^pool_/ { inuse[$1] += $NF }
		END {
			for (i = 0; i < 4; i++) {
				want = 1000000 * (i + 1)
				found = inuse["pool_" i]
				if (found < want || found > want + 50000) {
					print i, want, found
					wrong = 1
				}
			}
			exit wrong
		}'
}

@test "node: all its threads have a name" {
	command -v node >/dev/null || skip "node is not installed"
	cat >workers.js <<-'END'
		const { Worker, isMainThread } = require('worker_threads');
		const kept = [];
		for (let i = 0; i < 2000; i++)
			kept.push(Buffer.allocUnsafeSlow(1000 + i));
		if (isMainThread)
			for (let i = 0; i < 2; i++)
				new Worker(__filename);
	END
	timeout 120 "$HEAPTAP" record --sample-bytes 64K --label-threads -o p -- node workers.js >out 2>log
	label_values "$(last_snapshot p)" thread >names
	grep -qx node names
	run ! grep -qx -e - -e '(other)' names
}
