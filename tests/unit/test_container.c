/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * container, container_stores: a host with every runtime. The files of docker 20.10, podman 4.3,
 * containerd 1.6, runc 1.1 and crun 1.8 are shortened copies of real ones. Those of Kubernetes,
 * CRI-O, nerdctl, systemd-machined and LXC follow the sources and documentation of these.
 */
#include "tree_fixture.h"

#include "proc/container.h"
#include "proc/container_stores.h"

#define DOCKER	 "d2d311675b727ef22658276054d37a7413ffb616a9ff586263e70a30e6a60475"
#define PODMAN	 "934ac481a838783853515b0a9225c4e828d56d25b1bbb6a03ce9446ce9e47066"
#define VOLATILE "7154ad4635a2c122be36afd36abe4904cd69c42384ac1637c968f23d9dbab3ba"
#define NGINX_A	 "aaaa000000000000000000000000000000000000000000000000000000000001"
#define NGINX_B	 "aaaa000000000000000000000000000000000000000000000000000000000002"
#define SIDECAR	 "aaaa000000000000000000000000000000000000000000000000000000000003"
#define PAUSE_A	 "aaaa000000000000000000000000000000000000000000000000000000000004"
#define CRIO	 "cccc000000000000000000000000000000000000000000000000000000000001"
#define CRIO_OLD "cccc000000000000000000000000000000000000000000000000000000000002"
#define NERDCTL	 "dddd000000000000000000000000000000000000000000000000000000000001"
#define UNKNOWN	 "eeee000000000000000000000000000000000000000000000000000000000001"
#define MOBY	 "ffff000000000000000000000000000000000000000000000000000000000001"

#define TOP	"/sys/fs/cgroup"
#define TASKS	"/run/containerd/io.containerd.runtime.v2.task"
#define STORAGE "/var/lib/containers/storage/overlay-containers"

static const char v2_only[] = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

/* A process in a cgroup of v2, and that cgroup's list of processes. */
static void process(pid_t pid, const char *cgroup, unsigned int start_ticks)
{
	char path[1024], pids[16];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	tree_write(path, "%d (sh) S 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 %u 1 1", pid,
		   start_ticks);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	tree_write(path, "1:name=systemd:/\n0::%s\n", cgroup);
	snprintf(path, sizeof(path), TOP "%s", cgroup);
	snprintf(pids, sizeof(pids), "%d\n", pid);
	tree_cgroup(path, pids);
}

static void docker(const char *folder, const char *id, const char *name, pid_t pid)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s/config.v2.json", folder, id);
	tree_write(path,
		   "{\"StreamConfig\":{},\"State\":{\"Running\":%s,\"Paused\":false,\"Pid\":%d,"
		   "\"ExitCode\":0,\"Health\":null},\"ID\":\"%s\",\"Name\":\"/%s\",\"Limit\":"
		   "18446744073709551615}",
		   pid ? "true" : "false", pid, id, name);
}

static void task(const char *namespace, const char *id, pid_t pid, const char *annotations)
{
	char path[512];

	snprintf(path, sizeof(path), TASKS "/%s/%s/config.json", namespace, id);
	tree_write(path,
		   "{\"ociVersion\":\"1.0.2\",\"process\":{\"rlimits\":[{\"type\":\"RLIMIT_CORE\","
		   "\"hard\":18446744073709551615}]},\"annotations\":{%s}}",
		   annotations);
	snprintf(path, sizeof(path), TASKS "/%s/%s/init.pid", namespace, id);
	tree_write(path, "%d", pid);
}

static void runc(const char *folder, const char *id, pid_t pid, unsigned int start,
		 const char *cgroup)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s/state.json", folder, id);
	tree_write(path,
		   "{\"id\":\"%s\",\"init_process_pid\":%d,\"init_process_start\":%u,"
		   "\"created\":\"2026-11-30T07:51:52.778704284Z\",\"rootless\":false,"
		   "\"cgroup_paths\":{\"\":\"%s" TOP "%s\"},\"config\":{}}",
		   id, pid, start, tree_root, cgroup);
}

#define POD(name, pod)                                                                             \
	"\"io.kubernetes.cri.container-name\":\"" name "\","                                       \
	"\"io.kubernetes.cri.container-type\":\"container\","                                      \
	"\"io.kubernetes.cri.sandbox-name\":\"" pod "\","                                          \
	"\"io.kubernetes.cri.sandbox-namespace\":\"shop\""

static void kubernetes(void)
{
	process(301, "/kubepods.slice/cri-containerd-" NGINX_A ".scope", 1);
	process(302, "/kubepods.slice/cri-containerd-" NGINX_B ".scope", 1);
	process(303, "/kubepods.slice/cri-containerd-" SIDECAR ".scope", 1);
	process(304, "/kubepods.slice/cri-containerd-" PAUSE_A ".scope", 1);
	task("k8s.io", NGINX_A, 301, POD("nginx", "web-1"));
	task("k8s.io", NGINX_B, 302, POD("nginx", "web-2"));
	task("k8s.io", SIDECAR, 303, POD("proxy", "web-2"));
	task("k8s.io", PAUSE_A, 304,
	     "\"io.kubernetes.cri.container-type\":\"sandbox\","
	     "\"io.kubernetes.cri.sandbox-name\":\"web-1\","
	     "\"io.kubernetes.cri.sandbox-namespace\":\"shop\"");
}

static void crio(const char *id, pid_t pid)
{
	char path[512];

	snprintf(path, sizeof(path), STORAGE "/%s/userdata/config.json", id);
	tree_write(
		path,
		"{\"annotations\":{\"io.container.manager\":\"cri-o\","
		"\"io.kubernetes.container.name\":\"db\","
		"\"io.kubernetes.cri-o.ContainerType\":\"container\","
		"\"io.kubernetes.pod.name\":\"db-0\",\"io.kubernetes.pod.namespace\":\"shop\"}}");
	snprintf(path, sizeof(path), STORAGE "/%s/userdata/state.json", id);
	tree_write(path,
		   "{\"ociVersion\":\"1.0.2\",\"id\":\"%s\",\"status\":\"%s\",\"pid\":%d,"
		   "\"bundle\":\"/run/x\",\"initPid\":401,\"initStartTime\":1}",
		   id, pid ? "running" : "stopped", pid);
}

static void storage(void)
{
	tree_write(STORAGE "/containers.json",
		   "[{\"id\":\"" PODMAN "\",\"names\":[\"pod\"],\"image\":\"\",\"layer\":\"e286\","
		   "\"metadata\":\"{\\\"image-name\\\":\\\"\\\",\\\"name\\\":\\\"pod\\\"}\","
		   "\"flags\":{\"MountLabel\":\"\"}},"
		   "{\"id\":\"" CRIO "\",\"names\":[\"k8s_db_db-0_shop_uid_1\"],"
		   "\"metadata\":\"{\\\"pod-name\\\":\\\"k8s_db-0_shop_uid_0\\\"}\"},"
		   "{\"id\":\"" CRIO_OLD "\",\"names\":[\"k8s_db_db-0_shop_uid_0\"],"
		   "\"metadata\":\"{\\\"pod-name\\\":\\\"k8s_db-0_shop_uid_0\\\"}\"}]");
	tree_write("/run/containers/storage/overlay-containers/volatile-containers.json",
		   "[{\"id\":\"" VOLATILE "\",\"names\":[\"once\"],\"metadata\":\"\"}]");
	tree_write("/run/containers/storage/overlay-containers/" PODMAN "/userdata/pidfile", "201");
	process(201, "/machine.slice/libpod-" PODMAN ".scope/container", 1);
	process(202, "/machine.slice/libpod-conmon-" PODMAN ".scope", 1);
	/* No PID is known: by its cgroup. */
	process(203, "/libpod_parent/libpod-" VOLATILE, 7);
	crio(CRIO, 401);
	crio(CRIO_OLD, 0);
	process(401, "/kubepods.slice/crio-" CRIO ".scope", 1);
}

static int setup(void **state)
{
	if (tree_setup(state))
		return -1;
	tree_cgroup(TOP, "");
	docker("/var/lib/docker/containers", DOCKER, "shop", 101);
	process(101, "/system.slice/docker-" DOCKER ".scope/init", 1);
	tree_cgroup(TOP "/system.slice/docker-" DOCKER ".scope", "");
	storage();
	tree_cgroup(TOP "/machine.slice/libpod-" PODMAN ".scope", "");
	kubernetes();
	task("default", NERDCTL, 501, "");
	tree_write("/var/lib/nerdctl/1935db59/names/default/named", NERDCTL);
	process(501, "/default/" NERDCTL, 1);
	task("default", "plain", 502, "");
	runc("/run/containerd/runc/default", "plain", 502, 9, "/own/place");
	process(502, "/own/place", 9);
	runc("/run/runc", "web", 601, 1710465, "/a/web");
	process(601, "/a/web/init.scope", 1710465);
	tree_cgroup(TOP "/a/web", "");
	runc("/run/runc", "webby", 602, 5, "/a/webby");
	process(602, "/a/webby", 5);
	tree_write("/run/crun/cr/status", "{\"pid\": 701, \"process-start-time\": 44, "
					  "\"cgroup-path\": \"/c/elsewhere\", \"scope\": \"\"}");
	process(701, "/c/elsewhere/container", 44);
	tree_cgroup(TOP "/c/elsewhere", "");
	tree_write("/run/systemd/machines/deb-12",
		   "# This is private data. Do not parse.\nNAME=deb-12\n"
		   "SCOPE=machine-deb\\x2d12.scope\nSERVICE=nspawn\nLEADER=801\nCLASS=container\n");
	process(801, "/machine.slice/machine-deb\\x2d12.scope/payload/init.scope", 1);
	tree_cgroup(TOP "/machine.slice/machine-deb\\x2d12.scope/payload", "");
	tree_write("/run/systemd/machines/vm", "NAME=vm\nLEADER=802\nCLASS=vm\n");
	tree_write("/var/lib/lxc/box/config", "lxc.uts.name = box\n");
	process(901, "/lxc.payload.box/system.slice/x.service", 20);
	process(902, "/lxc.payload.box/init.scope", 10);
	tree_cgroup(TOP "/lxc.payload.box", "");
	tree_write("/var/lib/lxc/off/config", "lxc.uts.name = off\n");
	process(950, "/docker/" UNKNOWN, 1);
	return 0;
}

static void check(const char *key, const char *id, const char *runtime, pid_t init_pid,
		  const char *cgroup)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct container *container CLEANUP(container) = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_mounts_parse(v2_only, tree_root, &mounts), 0);
	if (container_find(mounts, key, &container, &error))
		fail_msg("%s", error.text);
	assert_string_equal(container->id, id);
	assert_string_equal(container->runtime, runtime);
	assert_int_equal(container->init_pid, init_pid);
	assert_string_equal(container->scope->path, cgroup);
}

static void check_error(const char *key, int expected, const char *words)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct container *container = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_mounts_parse(v2_only, tree_root, &mounts), 0);
	assert_int_equal(container_find(mounts, key, &container, &error), expected);
	assert_null(container);
	if (!strstr(error.text, words))
		fail_msg("'%s' is not in: %s", words, error.text);
}

static void test_runtimes(void **state)
{
	check("shop", DOCKER, "docker", 101, "/system.slice/docker-" DOCKER ".scope");
	check("d2d", DOCKER, "docker", 101, "/system.slice/docker-" DOCKER ".scope");
	check(DOCKER, DOCKER, "docker", 101, "/system.slice/docker-" DOCKER ".scope");
	check("pod", PODMAN, "podman", 201, "/machine.slice/libpod-" PODMAN ".scope");
	check("once", VOLATILE, "podman", 203, "/libpod_parent/libpod-" VOLATILE);
	check("named", NERDCTL, "containerd", 501, "/default/" NERDCTL);
	check("plain", "plain", "containerd", 502, "/own/place");
	/* The name before the prefix of "webby". */
	check("web", "web", "runc", 601, "/a/web");
	check("webb", "webby", "runc", 602, "/a/webby");
	check("cr", "cr", "crun", 701, "/c/elsewhere");
	check("deb-12", "deb-12", "machine", 801,
	      "/machine.slice/machine-deb\\x2d12.scope/payload");
	check("box", "box", "lxc", 902, "/lxc.payload.box");
	check("eeee", UNKNOWN, "docker", 950, "/docker/" UNKNOWN);
}

static void test_kubernetes(void **state)
{
	check("proxy", SIDECAR, "containerd", 303,
	      "/kubepods.slice/cri-containerd-" SIDECAR ".scope");
	/* Not the pod's sandbox. */
	check("web-1", NGINX_A, "containerd", 301,
	      "/kubepods.slice/cri-containerd-" NGINX_A ".scope");
	check("web-2/nginx", NGINX_B, "containerd", 302,
	      "/kubepods.slice/cri-containerd-" NGINX_B ".scope");
	check("shop/web-2/nginx", NGINX_B, "containerd", 302,
	      "/kubepods.slice/cri-containerd-" NGINX_B ".scope");
	check(PAUSE_A, PAUSE_A, "containerd", 304,
	      "/kubepods.slice/cri-containerd-" PAUSE_A ".scope");
	/* An earlier run of the same container does not count. */
	check("db", CRIO, "cri-o", 401, "/kubepods.slice/crio-" CRIO ".scope");
	check_error("nginx", -ENOTUNIQ, "\n  aaaa00000000  shop/web-1/nginx  containerd");
	check_error("web-2", -ENOTUNIQ, "2 containers");
	check_error("aaaa", -ENOTUNIQ, "4 containers");
	check_error(CRIO_OLD, -ESRCH, "not running");
}

static void test_errors(void **state)
{
	check_error("nope", -ENOENT, "container 'nope'");
	check_error("nope", -ENOENT, "\n  d2d311675b72  shop  docker\n");
	check_error("d2", -ENOENT, "first 3 characters");
	check_error("", -ENOENT, "first 3 characters");
	check_error("vm", -ENOENT, "none has this name");
	check_error("off", -ESRCH, "not running");
	docker("/home/u/.local/share/docker/containers", MOBY, "shop2", 0);
	check_error("shop2", -ESRCH, "not running");
	/* The PID is another process's now. */
	docker("/home/u/.local/share/docker/containers", MOBY, "shop2", 602);
	check_error("shop2", -ESRCH, "not running");
	runc("/run/runc", "late", 602, 6, "/a/webby");
	check_error("late", -ESRCH, "not running");
	/* In its starter's cgroup: everything there would be taken for the container. */
	runc("/run/runc", "shared", 603, 5, "");
	process(603, "/user.slice/session-3.scope", 5);
	check_error("shared", -ENOTSUP, "-p 603");
}

static void test_stale(void **state)
{
	/* docker's file is from before a crash; containerd's is from now. */
	docker("/var/lib/docker/containers", MOBY, "moved", 602);
	task("moby", MOBY, 604, "");
	process(604, "/docker/" MOBY, 3);
	check("moved", MOBY, "docker", 604, "/docker/" MOBY);
	/* The same name in two of containerd's namespaces. */
	task("other", "plain", 605, "");
	process(605, "/other/plain", 3);
	check_error("plain", -ENOTUNIQ, "2 containers");
}

static void test_no_containers(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct container *container = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_mounts_parse("", tree_root, &mounts), 0);
	assert_int_equal(container_find(mounts, "x", &container, &error), -ENOENT);
	assert_non_null(strstr(error.text, "--cgroup"));
}

static void test_broken_files(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"{}",
		"null",
		"{\"ID\":7}",
		"{\"ID\":\"x\",\"State\":[]}x",
		"[{}]",
		"[7,{\"id\":{}}]",
		"{\"id\":\"\"}",
		"12345678901234567890",
		"-1",
		"LEADER=",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
	};

	for (unsigned int file = 0; file < CONTAINER_FILE_COUNT; file++) {
		for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
			struct container_records records _cleanup_container_records_ = {};
			int err = container_records_parse(file, "/a/b/c/d", texts[i],
							  strlen(texts[i]), &records);

			assert_true(!err || err == -EINVAL);
			for (size_t k = 0; k < records.count; k++) {
				assert_true(*records.entries[k].id);
				assert_int_equal(records.entries[k].init_pid, 0);
			}
		}
	}
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_runtimes),
		TEST(test_kubernetes),
		TEST(test_errors),
		TEST(test_stale),
		cmocka_unit_test_setup_teardown(test_no_containers, tree_setup, tree_teardown),
		cmocka_unit_test(test_broken_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
