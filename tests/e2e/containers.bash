# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
#
# Containers for tests: an image from this machine's own programs, and runc to run it. Containers
# have a PID, mount and network namespace and a cgroup of their own, and share the image as the
# lower layer of an overlay, as they do elsewhere.

IMAGE=$BATS_FILE_TMPDIR/image

# image_add FILE...: to the image, at the same place, with the libraries of programs.
image_add() {
	local file files=("$@")

	for file in "$@"; do
		[[ $file == *.py ]] || mapfile -t -O ${#files[@]} files < <(ldd "$file" | grep -oE '/[^ ]+')
	done
	mapfile -t files < <(printf '%s\n' "${files[@]}" | sort -u)
	cp -L --parents "${files[@]}" "$IMAGE"
}

# image_python: the interpreter and what it reads to start and to run the tests' programs.
image_python() {
	local files

	PYTHON=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
	image_add "$PYTHON"
	cat >"$BATS_FILE_TMPDIR/modules.py" <<-'END'
		import encodings.ascii, encodings.latin_1, encodings.utf_8, os, sys, time
		for module in list(sys.modules.values()):
		    path = getattr(module, "__file__", None)
		    if path and path.startswith("/"):
		        print(path)
	END
	mapfile -t files < <("$PYTHON" "$BATS_FILE_TMPDIR/modules.py" | grep -v '/modules\.py$' | sort -u)
	[ ${#files[@]} -gt 0 ] || return 1
	image_add "${files[@]}"
	# The folder that the interpreter knows its library by.
	mkdir -p "$IMAGE$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("platstdlib"))')/lib-dynload"
}

image_build() {
	local applet

	mkdir -p "$IMAGE"/{bin,proc,dev,sys,tmp,etc,run,work,var/lib/nginx,var/log/nginx}
	cp "$(type -P busybox)" "$IMAGE/bin/busybox"
	for applet in sh sleep seq wget cat kill; do
		ln -s busybox "$IMAGE/bin/$applet"
	done
	image_add "$WORKLOADS/procs" "$WORKLOADS/idle"
	mv "$IMAGE$WORKLOADS/procs" "$IMAGE$WORKLOADS/idle" "$IMAGE/bin"
	printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$IMAGE/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$IMAGE/etc/group"
	image_python
	! command -v nginx >/dev/null || image_add "$(type -P nginx)"
}

# container_prepare NAME COMMAND...: the folder NAME with an OCI bundle in it.
container_prepare() {
	local name=$1
	shift
	mkdir -p "$name"/{upper,lower,rootfs}
	mount -t overlay -o "lowerdir=$IMAGE,upperdir=$PWD/$name/upper,workdir=$PWD/$name/lower" \
		overlay "$name/rootfs"
	MOUNTED+=("$PWD/$name/rootfs")
	(cd "$name" && rm -f config.json && runc spec)
	jq --arg cgroup "/heaptap-test-$$/$name" '
		.process.args = $ARGS.positional
		| .process.terminal = false
		| .process.cwd = "/work"
		| .process.env += ["PYTHONDONTWRITEBYTECODE=1"]
		| .process.rlimits = []
		| (.process.capabilities | .[]) += ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE"]
		| .root.readonly = false
		| .linux.cgroupsPath = $cgroup' --args -- "$@" <"$name/config.json" >"$name/new.json"
	mv "$name/new.json" "$name/config.json"
}

# container_edit NAME FILTER: jq's, on its configuration.
container_edit() {
	jq "$2" <"$1/config.json" >"$1/new.json"
	mv "$1/new.json" "$1/config.json"
}

# container_bind NAME FROM TO: a folder of this machine at a place in the container.
container_bind() {
	container_edit "$1" ".mounts += [{type: \"bind\", source: \"$2\", destination: \"$3\", options: [\"rbind\", \"rw\"]}]"
}

# container_start NAME: a prepared one, until container_remove or the end of the test. Sets PID to its
# first process, as this machine knows it.
container_start() {
	local name=$1

	CONTAINERS+=("$name")
	runc run -d --bundle "$name" --pid-file "$name/pid" "$name" \
		</dev/null >"$name/out" 2>"$name/err" 3>&- || {
		cat "$name/err" >&2
		return 1
	}
	# shellcheck disable=SC2034
	PID=$(<"$name/pid")
}

# container_run NAME COMMAND...: both.
container_run() {
	container_prepare "$@"
	container_start "$1"
}

# container_exec NAME COMMAND...: one more process, until it ends.
container_exec() {
	local name=$1
	shift
	runc exec --cwd /work "$name" "$@" </dev/null 3>&-
}

# container_remove NAME: with all its processes.
container_remove() {
	runc delete -f "$1" 3>&- 2>/dev/null || true
}

# container_cgroup NAME: the folder of its cgroup, in the first hierarchy that it is in.
container_cgroup() {
	local pid controllers path

	pid=$(<"$1/pid")
	while IFS=: read -r _ controllers path; do
		[[ $path == */heaptap-test-$$/* ]] || continue
		for folder in "/sys/fs/cgroup/${controllers:-unified}" "/sys/fs/cgroup"; do
			if [ -d "$folder$path" ]; then
				echo "$folder$path"
				return
			fi
		done
	done <"/proc/$pid/cgroup"
	return 1
}

containers_setup() {
	command -v runc >/dev/null || skip "runc is not installed"
	command -v busybox >/dev/null || skip "busybox is not installed"
	CONTAINERS=()
	CGROUPS=()
	FOLDERS=()
	SERVERS=()
	# runc's names are this machine's.
	# shellcheck disable=SC2034
	BOX=heaptap-box-$$
	# shellcheck disable=SC2034
	OTHER=heaptap-other-$$
}

# Also after a failure half way: containers, their cgroups, and what a test made itself.
containers_teardown() {
	local name folder pid

	# A killed postgres would leave shared memory behind.
	for pid in "${SERVERS[@]}"; do
		kill -QUIT "$pid" 2>/dev/null || continue
		poll 10 is_gone "$pid" || true
	done
	for name in "${CONTAINERS[@]}"; do
		container_remove "$name"
	done
	for folder in "${CGROUPS[@]}"; do
		cgroup_remove "$folder"
	done
	for folder in "/sys/fs/cgroup/heaptap-test-$$" /sys/fs/cgroup/*/"heaptap-test-$$"; do
		[ ! -d "$folder" ] || cgroup_remove "$folder"
	done
	for folder in "${FOLDERS[@]}"; do
		rm -rf "$folder"
	done
}

# cgroup_new NAME: one in a hierarchy of this machine; sets CGROUP to its folder.
cgroup_new() {
	local root

	for root in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/pids; do
		[ -e "$root/cgroup.procs" ] && break
	done
	CGROUP=$root/heaptap-test-$$/$1
	mkdir -p "$CGROUP"
	CGROUPS+=("$CGROUP")
}

# cgroup_twins: two with one number, in two hierarchies of this machine; sets CGROUP and TWIN.
cgroup_twins() {
	local twins=/sys/fs/cgroup/freezer/heaptap-test-$$ i number folder
	local -A folders

	[ -e /sys/fs/cgroup/pids/cgroup.procs ] && [ -e /sys/fs/cgroup/freezer/cgroup.procs ] || return 1
	CGROUPS+=("/sys/fs/cgroup/pids/heaptap-test-$$" "$twins")
	# Whoever counts in larger steps is ahead, and among so many there is one that is met.
	for i in {1..20}; do
		folder=/sys/fs/cgroup/pids/heaptap-test-$$/$i
		mkdir -p "$folder"
		folders[$(stat -c %i "$folder")]=$folder
	done
	for i in {1..1000}; do
		mkdir -p "$twins/$i"
		number=$(stat -c %i "$twins/$i")
		CGROUP=${folders[$number]:-}
		# shellcheck disable=SC2034 # of tests
		TWIN=$twins/$i
		[ -z "$CGROUP" ] || return 0
	done
	return 1
}

# cgroup_enter FOLDER COMMAND...: in place of this process.
cgroup_enter() {
	local folder=$1
	shift
	echo "$BASHPID" >"$folder/cgroup.procs"
	exec "$@"
}

has_no_processes() {
	[ -z "$(cat "$1/cgroup.procs" 2>/dev/null)" ]
}

# cgroup_remove FOLDER: with what runs in it, and what is below it.
cgroup_remove() {
	local folder pid

	[ -d "$1" ] || return 0
	while read -r folder; do
		while read -r pid; do
			kill -9 "$pid" 2>/dev/null || true
		done <"$folder/cgroup.procs"
		poll 10 has_no_processes "$folder" || true
		rmdir "$folder" || true
	done < <(find "$1" -depth -type d)
}
