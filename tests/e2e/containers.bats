#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# Containers and cgroups as scopes: everything in them, also what starts later, and nothing else.

load helpers
load processes
load containers

setup_file() {
	[ "$(id -u)" -ne 0 ] || ! command -v busybox >/dev/null || image_build
	export PYTHON
}

setup() {
	begin_test
	containers_setup
}

teardown() {
	containers_teardown
	end_test
}

# record OPTION...: a heaptap in the background that has begun; sets profiler.
record() {
	spawn heaptap "$HEAPTAP" record --sample-bytes 1 -o p "$@"
	profiler=$PID
	wait_attached heaptap
}

end_session() {
	kill -INT "$profiler"
	wait_exit "$profiler"
}

snapshot() {
	last_snapshot p
}

# only_container NAME: every sample has its label.
only_container() {
	[ "$(label_values "$(snapshot)" container)" = "$1" ] || {
		label_values "$(snapshot)" container >&2
		return 1
	}
}

# all_match NAME NSPID...: as processes_match, for a container's own numbers.
all_match() {
	local name=$1
	shift
	LABEL=nspid TRUTHS=$name/rootfs/work processes_match "$(snapshot)" "$@" || {
		cat heaptap.err >&2
		return 1
	}
}

# run_waiting NAME COMMAND: a shell command that runs when container_go says so; then the container
# waits for the next one, to end. A first procs is there before, so that its files are known.
run_waiting() {
	container_prepare "$1" /bin/sh -c "procs pause & read -r line <go; $2; echo done >done; read -r line <go"
	mkfifo "$1/rootfs/work/go"
	container_start "$1"
}

container_go() {
	timeout "$PATIENCE" bash -c "echo go >'$1/rootfs/work/go'"
}

container_done() {
	poll "$PATIENCE" test -s "$1/rootfs/work/done"
}

@test "a shell that starts 200 short processes" {
	# shellcheck disable=SC2016
	run_waiting "$BOX" 'for i in $(seq 200); do procs child $i; done'
	record --container "$BOX"
	container_go "$BOX"
	container_done "$BOX"
	container_go "$BOX"
	wait_exit "$profiler"
	[ "$(role_pids child "$BOX/rootfs/work" | wc -l)" -eq 200 ]
	all_match "$BOX"
	only_container "$BOX"
	[ "$(label_values "$(snapshot)" nspid | wc -l)" -ge 200 ]
	reasons heaptap.err | tail -n 1 | grep -q '^Exiting, '
}

@test "python that forks and executes" {
	cat >fork.py <<-'END'
		import os
		for i in range(20):
		    pid = os.fork()
		    if pid == 0:
		        if i % 2:
		            os.execv("/bin/procs", ["procs", "child", str(i)])
		        kept = bytearray(1000000 + i)
		        os._exit(0)
		    os.waitpid(pid, 0)
		    if i % 2 == 0:
		        print(pid, 1000000 + i, flush=True)
	END
	run_waiting "$BOX" "$PYTHON fork.py >forks"
	cp fork.py "$BOX/rootfs/work"
	record --container "$BOX"
	container_go "$BOX"
	container_done "$BOX"
	end_session
	[ "$(wc -l <"$BOX/rootfs/work/forks")" -eq 10 ]
	[ "$(role_pids child "$BOX/rootfs/work" | wc -l)" -eq 10 ]
	all_match "$BOX"
	only_container "$BOX"
	# What a fork of the interpreter does besides is small.
	by_label_leaf "$(snapshot)" alloc_space nspid >measured
	by_label_leaf "$(snapshot)" inuse_space nspid >measured.inuse
	while read -r pid size; do
		awk -v pid="$pid" -v size="$size" '
			$1 == pid { sum += $3 }
			END { exit !(sum >= size && sum < size + 500000) }' measured
		awk -v pid="$pid" '$1 == pid { sum += $3 } END { exit sum > 0 }' measured.inuse
	done <"$BOX/rootfs/work/forks"
}

# get COUNT: so many pages from the nginx in the container.
get() {
	nsenter -t "$first" -n curl -s --max-time 20 -o page "http://127.0.0.1:8080/?[1-$1]" -w '%{http_code}\n' |
		sort | uniq -c | awk '{ print $1, $2 }'
}

serves_pages() {
	[ "$(get 1 2>/dev/null)" = "1 200" ]
}

# workers: their PIDs here.
workers() {
	pgrep -P "$first" | sort
}

has_new_workers() {
	[ "$(workers | wc -l)" -eq 2 ] && [ "$(workers | comm -12 - old | wc -l)" -eq 0 ]
}

@test "nginx with workers, and new ones after a reload" {
	command -v nginx >/dev/null || skip "nginx is not installed"
	container_prepare "$BOX" "$(type -P nginx)" -c /work/nginx.conf
	cat >"$BOX/rootfs/work/nginx.conf" <<-'END'
		daemon off;
		worker_processes 2;
		user root root;
		error_log stderr;
		pid /run/nginx.pid;
		events {}
		http {
			access_log off;
			server {
				listen 127.0.0.1:8080;
				location / { return 200 "text\n"; }
			}
		}
	END
	container_start "$BOX"
	first=$PID
	poll "$PATIENCE" serves_pages
	workers >old
	record --container "$BOX"
	[ "$(get 50)" = "50 200" ]
	kill -HUP "$first"
	poll "$PATIENCE" has_new_workers
	workers >new
	[ "$(get 50)" = "50 200" ]
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	only_container "$BOX"
	[ "$(label_values "$(snapshot)" comm)" = nginx ]
	# A worker allocates as it starts; one that has ended holds nothing.
	label_values "$(snapshot)" pid >pids
	[ "$(sort pids | comm -12 - new | wc -l)" -eq 2 ]
	by_pid_leaf "$(snapshot)" inuse_space | awk '$3 > 0 { print $1 }' | sort -u >living
	[ -z "$(comm -12 living old)" ]
	kill -QUIT "$first"
	wait_exit "$profiler"
}

@test "two containers of one image and this machine: one of them alone" {
	container_run "$BOX" procs pause 1
	first=$PID
	container_run "$OTHER" procs pause 2
	other=$PID
	spawn host "$WORKLOADS/procs" --wait fork 3
	host=$PID
	wait_for_line host.out '^ready'
	record --container "$BOX"
	tell host go
	container_exec "$OTHER" procs fork 3
	container_exec "$BOX" procs fork 3
	# Started by a process that is not in the container.
	container_exec "$BOX" procs forkexec 3
	container_exec "$BOX" procs storm 20
	container_exec "$OTHER" procs storm 20
	wait_for_line host.out '^done'
	end_session
	[ "$(role_pids parent "$BOX/rootfs/work" | wc -l)" -eq 3 ]
	all_match "$BOX"
	only_container "$BOX"
	run ! grep -qxE "$other|$host" <(label_values "$(snapshot)" pid)
	# Both, each under its own name.
	rm p.*
	for name in "$BOX" "$OTHER"; do
		rm "$name"/rootfs/work/truth.*
	done
	record --cgroup "$(dirname "$(container_cgroup "$BOX")")"
	container_exec "$BOX" procs fork 3
	container_exec "$OTHER" procs fork 4
	end_session
	"$E2E/pprof_labels.py" "$(snapshot)" alloc_objects container pid comm |
		awk '$3 == "procs" { print $1, $2 }' | sort -u | awk '{ count[$1]++ } END { for (name in count) print name, count[name] }' |
		sort >measured
	printf '%s\n' "$BOX 4" "$OTHER 5" | sort | cmp - measured
}

@test "a container by a part of its id, or by its cgroup" {
	id=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
	container_run "$id" procs pause 1
	record --container "${id:0:12}"
	container_exec "$id" procs fork 2
	end_session
	all_match "$id"
	label=$(label_values "$(snapshot)" container)
	[ ${#label} -ge 12 ]
	[[ $id == "$label"* ]]

	rm -f p.* "$id"/rootfs/work/truth.*
	record --cgroup "$(container_cgroup "$id")"
	container_exec "$id" procs fork 2
	end_session
	all_match "$id"
	[ "$(label_values "$(snapshot)" cgroup | wc -l)" -eq 1 ]
	label_values "$(snapshot)" cgroup | grep -q "$id"

	# A container that is gone.
	container_remove "$id"
	run "$HEAPTAP" record --container "$id" -o q
	[ "$status" -eq 1 ]
	[[ $output == *"$id"* ]]
}

@test "a user namespace and a read-only root" {
	unshare -U true || skip "there are no user namespaces here"
	mkdir -m 777 work
	container_prepare "$BOX" procs pause 1
	container_bind "$BOX" "$PWD/work" /work
	container_edit "$BOX" '.root.readonly = true
		| .linux.namespaces += [{type: "user"}]
		| .linux.uidMappings = [{containerID: 0, hostID: 100000, size: 65536}]
		| .linux.gidMappings = [{containerID: 0, hostID: 100000, size: 65536}]
		| .mounts |= map(select(.type != "cgroup" and .type != "mqueue"))'
	# The way there is for its root, too, which is nobody here.
	chmod a+rx . "$BOX" "$BOX/rootfs"
	for folder in "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR" "$BATS_TEST_TMPDIR" "$(dirname "$BATS_TEST_TMPDIR")"; do
		chmod a+rx "$folder"
	done
	container_start "$BOX"
	grep -q '^ *0 *100000' "/proc/$PID/uid_map"
	record --container "$BOX"
	container_exec "$BOX" procs fork 3
	container_exec "$BOX" procs spawn 3
	end_session
	TRUTHS=work LABEL=nspid processes_match "$(snapshot)"
	only_container "$BOX"
}

@test "heaptap in a privileged container that has this machine's processes" {
	image_add "$HEAPTAP"
	cp "$HEAPTAP" "$IMAGE/bin"
	mkdir tap
	spawn target "$WORKLOADS/calls" --wait
	target=$PID
	wait_for_line target.out '^ready'
	container_prepare "$BOX" heaptap record --sample-bytes 1 -o /work/p -p "$target"
	container_bind "$BOX" "$PWD/tap" /work
	container_edit "$BOX" '.linux.namespaces |= map(select(.type != "pid" and .type != "cgroup"))
		| (.process.capabilities | .[]) = ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE",
			"CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE", "CAP_SYS_NICE", "CAP_KILL", "CAP_SYSLOG"]
		| .process.noNewPrivileges = false
		| .linux.maskedPaths = [] | .linux.readonlyPaths = [] | .linux.seccomp = null
		| .linux.resources.devices = [{allow: true, access: "rwm"}]'
	container_edit "$BOX" '.mounts |= map(select(.type != "cgroup" and .type != "sysfs"))'
	container_bind "$BOX" /sys /sys
	container_start "$BOX"
	wait_for_line "$BOX/err" "^Attached to $target \\(" || wait_for_line "$BOX/out" "^Attached to $target \\("
	tell target go
	wait_for_line target.out '^site='
	tell target end
	wait_exit "$target"
	poll "$PATIENCE" test -s tap/p.0001.pb.gz
	poll "$PATIENCE" is_gone "$(<"$BOX/pid")"
	grep '^site=' target.out >truth
	matches_truth truth "$(last_snapshot tap/p)"
}

@test "the end of a container is the end of the session" {
	container_run "$BOX" procs pause 1
	record --container "$BOX"
	container_exec "$BOX" procs child 5
	runc kill "$BOX" TERM
	wait_exit "$profiler"
	[ "$(role_pids pausing "$BOX/rootfs/work")" = 1 ]
	# It allocated before the start of the session.
	rm "$BOX/rootfs/work/truth.1"
	all_match "$BOX"
	reasons heaptap.err | tail -n 1 | grep -q '^Exiting, '
}

@test "a cgroup of plain processes, and one below it" {
	cgroup_new top
	top=$CGROUP
	cgroup_new top/below
	below=$CGROUP
	spawn pause cgroup_enter "$top" "$WORKLOADS/procs" pause 1
	pause=$PID
	poll "$PATIENCE" grep -qx "$pause" "$top/cgroup.procs"
	mkdir theirs
	spawn outside env -C theirs "$WORKLOADS/procs" --wait fork 2
	wait_for_line outside.out '^ready'
	record --cgroup "$top"
	(cgroup_enter "$top" "$WORKLOADS/procs" fork 3 >out 3>&-)
	(cgroup_enter "$below" "$WORKLOADS/procs" daemon 3 >out 3>&-)
	tell outside go
	wait_for_line outside.out '^done'
	poll "$PATIENCE" has_role daemon
	poll "$PATIENCE" is_gone "$(role_pids daemon)"
	end_session
	processes_match "$(snapshot)"
	sed -nE 's/^process=([0-9]+) .*/\1/p' truth.* | sort -u >ours
	label_values "$(snapshot)" pid | sort | cmp - ours
}

# As on a whole machine: children are in the scope by what they are, not by their parents.
@test "what a child does in its parent's memory is the parent's, without --follow" {
	cgroup_new family
	for command in "share 8" "vfork 4"; do
		rm -f p.* truth.*
		# shellcheck disable=SC2086
		spawn parent cgroup_enter "$CGROUP" "$WORKLOADS/procs" --wait $command
		parent=$PID
		wait_for_line parent.out '^ready'
		record --cgroup "$CGROUP" --no-follow
		tell parent go
		wait_for_line parent.out '^done'
		end_session
		processes_match "$(snapshot)" "$parent"
		pprof -comments "$(snapshot)" | grep -qx 'losses: none'
		tell parent end
		wait_exit "$parent"
	done
}

@test "a cgroup of another hierarchy with the same number" {
	cgroup_twins || skip "no two hierarchies with cgroups of one number"
	mkdir theirs
	spawn outside env -C theirs "$WORKLOADS/procs" --wait child 2
	outside=$PID
	wait_for_line outside.out '^ready'
	spawn pause cgroup_enter "$CGROUP" "$WORKLOADS/procs" pause 1
	poll "$PATIENCE" grep -qx "$PID" "$CGROUP/cgroup.procs"
	record --cgroup "$CGROUP"
	echo "$outside" >"$TWIN/cgroup.procs"
	tell outside go
	wait_exit "$outside"
	(cgroup_enter "$CGROUP" "$WORKLOADS/procs" child 3 >out 3>&-)
	end_session
	processes_match "$(snapshot)"
	[ "$(label_values "$(snapshot)" pid)" = "$(role_pids child)" ]
}

@test "a process that had ended when it came into the cgroup does not hold up the end" {
	cgroup_new top
	spawn pause cgroup_enter "$CGROUP" "$WORKLOADS/procs" pause 1
	pause=$PID
	poll "$PATIENCE" grep -qx "$pause" "$CGROUP/cgroup.procs"
	# Nobody waits for the child.
	spawn parent sh -c 'sleep 0.1 & echo "child $!"; exec sleep 1000'
	wait_for_line parent.out '^child'
	child=$(sed 's/^child //' parent.out)
	poll "$PATIENCE" grep -q '^State:.*Z' "/proc/$child/status"
	record --cgroup "$CGROUP"
	echo "$child" >"$CGROUP/cgroup.procs"
	kill -TERM "$pause"
	wait_exit "$profiler"
	reasons heaptap.err | tail -n 1 | grep -q '^Exiting, '
}

as_postgres() {
	setpriv --reuid postgres --regid postgres --clear-groups "$@"
}

# The folder of the server's own programs.
postgres_programs() {
	find /usr/lib/postgresql -name initdb -printf '%h\n' | sort -V | tail -n 1
}

@test "postgres with 20 busy connections" {
	programs=$(postgres_programs)
	[ -n "$programs" ] || skip "postgres is not installed"
	# Not below bats' folder, which is root's alone.
	data=$(mktemp -d)
	FOLDERS+=("$data")
	chown postgres "$data"
	as_postgres env -C "$data" "$programs/initdb" -D "$data/db" --no-sync --auth trust -U postgres >initdb.log
	cat >>"$data/db/postgresql.conf" <<-END
		listen_addresses = ''
		unix_socket_directories = '$data'
		fsync = off
		max_connections = 40
		log_connections = on
		log_line_prefix = '%p %b '
	END
	cgroup_new postgres
	spawn postgres cgroup_enter "$CGROUP" setpriv --reuid postgres --regid postgres --clear-groups \
		"$programs/postgres" -D "$data/db"
	server=$PID
	SERVERS+=("$server")
	poll "$PATIENCE" "$programs/pg_isready" -q -h "$data"
	"$programs/pgbench" -q -i -h "$data" -U postgres postgres >init.log 2>&1
	before=$(wc -l <postgres.err)
	spawn heaptap "$HEAPTAP" record --sample-bytes 16K -o p --cgroup "$CGROUP"
	profiler=$PID
	wait_attached heaptap
	"$programs/pgbench" -n -c 20 -j 2 -t 30 -h "$data" -U postgres postgres >bench.log 2>&1
	grep -qE '^number of transactions actually processed: 600/600' bench.log
	run ! grep -qiE '^number of failed transactions: [1-9]|aborted|error' bench.log
	kill -USR2 "$profiler"
	wait_for_line heaptap.err '\(signal\)$'
	# Every backend that served one of the connections.
	tail -n "+$((before + 1))" postgres.err |
		sed -nE 's/^([0-9]+) .*connection authorized: .*application_name=pgbench.*/\1/p' | sort -u >backends
	[ "$(wc -l <backends)" -ge 20 ]
	label_values "$(snapshot)" pid | sort >counted
	[ -z "$(comm -23 backends counted)" ]
	[ "$(label_values "$(snapshot)" comm)" = postgres ]
	kill -INT "$server"
	wait_exit "$server"
	wait_exit "$profiler"
	run ! grep -qE 'terminated by signal|PANIC|FATAL|crash' <(tail -n "+$((before + 1))" postgres.err)
	# Nothing is in use of backends that have ended.
	by_pid_leaf p.0001.pb.gz inuse_space | awk '$3 > 0 { print $1 }' | sort -u | comm -12 - backends >late
	[ ! -s late ]
}

@test "a cgroup whose processes come and go while probes are placed" {
	cgroup_new busy
	spawn busy cgroup_enter "$CGROUP" sh -c 'while :; do (:); done'
	wait_for_line "$CGROUP/cgroup.procs" "^$PID\$"
	spawn heaptap "$HEAPTAP" record --cgroup "$CGROUP" --sample-bytes 1 --duration 1 -o p
	profiler=$PID
	wait_exit "$profiler"
	reasons heaptap.err >measured
	has_lines measured . 1
	run ! grep -v '^Detaching, ' measured
}

@test "a cgroup whose processes are forked while heaptap starts" {
	cgroup_new brood
	spawn brood cgroup_enter "$CGROUP" "$WORKLOADS/procs" --wait brood
	tell brood go
	wait_for_line brood.out '^breeding'
	record --cgroup "$CGROUP"
	tell brood go
	wait_for_line brood.out '^done'
	tell brood end
	wait_exit "$profiler"
	[ "$(role_pids child | wc -l)" -gt 1 ]
	processes_match "$(snapshot)"
}
