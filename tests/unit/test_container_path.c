/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* container_path: the cgroup names of every runtime, and those that only look like one. */
#include "tree_fixture.h"

#include "proc/container_path.h"

#define A   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define B   "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"

static void check(const char *path, const char *runtime, const char *id, const char *cgroup)
{
	struct container_path found;

	if (!container_path_parse(path, &found))
		fail_msg("%s: no container", path);
	assert_string_equal(found.runtime, runtime);
	assert_string_equal(found.id, id);
	assert_int_equal(found.length, strlen(cgroup));
}

static void test_runtimes(void **state)
{
	check("/system.slice/docker-" A ".scope", "docker", A, "/system.slice/docker-" A ".scope");
	check("/docker/" A, "docker", A, "/docker/" A);
	check("/docker/" A "/init.scope", "docker", A, "/docker/" A);
	check("/docker/" A "/docker/" B "/x", "docker", B, "/docker/" A "/docker/" B);
	check(POD "/cri-containerd-" A ".scope", "containerd", A,
	      POD "/cri-containerd-" A ".scope");
	check(POD "/crio-" A ".scope/container", "cri-o", A, POD "/crio-" A ".scope");
	check("/kubepods/besteffort/pod1-2/" A, "kubernetes", A, "/kubepods/besteffort/pod1-2/" A);
	check("/kubepods/pod1-2/crio-" A, "cri-o", A, "/kubepods/pod1-2/crio-" A);
	check("/docker/" A "/kubelet.slice/kubelet" POD "/cri-containerd-" B ".scope", "containerd",
	      B, "/docker/" A "/kubelet.slice/kubelet" POD "/cri-containerd-" B ".scope");
	check("/system.slice/containerd.service/kubepods-podx.slice:cri-containerd:" A,
	      "containerd", A,
	      "/system.slice/containerd.service/kubepods-podx.slice:cri-containerd:" A);
	check("/k8s.io/" A, "containerd", A, "/k8s.io/" A);
	check("/system.slice/nerdctl-" A ".scope", "containerd", A,
	      "/system.slice/nerdctl-" A ".scope");
	check("/machine.slice/libpod-" A ".scope/container", "podman", A,
	      "/machine.slice/libpod-" A ".scope");
	check("/libpod_parent/libpod-" A, "podman", A, "/libpod_parent/libpod-" A);
	check("/system.slice/web.service/libpod-payload-" A, "podman", A,
	      "/system.slice/web.service/libpod-payload-" A);
	check("/ecs/0123/" A, "oci", A, "/ecs/0123/" A);
	check("/system.slice/other-" A ".scope", "oci", A, "/system.slice/other-" A ".scope");
	check("/lxc.payload.web/system.slice/x.service", "lxc", "web", "/lxc.payload.web");
	check("/lxc/web", "lxc", "web", "/lxc/web");
	check("/machine.slice/machine-a\\x2db.scope/payload", "machine", "a-b",
	      "/machine.slice/machine-a\\x2db.scope");
	check("/machine.slice/systemd-nspawn@web.service/payload/init.scope", "machine", "web",
	      "/machine.slice/systemd-nspawn@web.service");
	check("/system.slice/runc-web.scope", "runc", "web", "/system.slice/runc-web.scope");
	check("/user.slice/crun-web.scope", "crun", "web", "/user.slice/crun-web.scope");
}

static void test_none(void **state)
{
	static const char *const paths[] = {
		"/",
		"",
		"/system.slice/docker.service",
		"/system.slice/ssh.service",
		POD,
		"/system.slice/crio-conmon-" A ".scope",
		"/machine.slice/libpod-conmon-" A ".scope",
		"/docker/0123456789abcdef",
		"/system.slice/x" A,
		"/lxc.monitor.web",
		"/machine.slice",
		"/machine.slice/machine-.scope",
		"/user.slice/session-3.scope",
	};
	struct container_path found;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (container_path_parse(paths[i], &found))
			fail_msg("%s: %s %s", paths[i], found.runtime, found.id);
}

static void check_length(const char *path, const char *id, const char *cgroup)
{
	assert_int_equal(container_path_length(path, id), strlen(cgroup));
}

static void test_length(void **state)
{
	check_length("/docker/" A "/docker/" B, A, "/docker/" A);
	check_length("/docker/" A "/docker/" B, B, "/docker/" A "/docker/" B);
	check_length("/system.slice/docker-" A ".scope/init", A,
		     "/system.slice/docker-" A ".scope");
	check_length("/process_api/x/web/init.scope", "web", "/process_api/x/web");
	check_length("/webs/xweb/web2", "web", "");
	check_length("/a/web/b", "", "");
	check_length("/lxc.payload.web/x", "web", "/lxc.payload.web");
	check_length("/m/machine-a\\x2db.scope/payload/init.scope", "a-b",
		     "/m/machine-a\\x2db.scope/payload");
	check_length("/m/systemd-nspawn@web.service/payloads", "web",
		     "/m/systemd-nspawn@web.service");
	check_length("/m/libpod-conmon-" A ".scope", A, "");
	check_length("/x/init.scope/y", "init.scope", "/x/init.scope");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runtimes),
					   cmocka_unit_test(test_none),
					   cmocka_unit_test(test_length)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
