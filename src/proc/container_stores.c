/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The files, and what is read of them:
 *   docker      containers/ID/config.v2.json: ID, Name ("/NAME"), State.Running, State.Pid
 *   podman,     DRIVER-containers/containers.json, volatile-containers.json (containers/storage):
 *   CRI-O       [{id, names, metadata}], metadata being JSON in a string;
 *               ID/userdata/config.json, the OCI spec: annotations; ID/userdata/pidfile;
 *               ID/userdata/state.json of CRI-O: pid (0 once it has ended), initPid
 *   containerd  io.containerd.runtime.v2.task/NAMESPACE/ID: config.json (OCI spec), init.pid
 *   nerdctl     names/NAMESPACE/NAME, which holds the id
 *   runc        ID/state.json: id, init_process_pid, init_process_start, cgroup_paths
 *               {CONTROLLER: DIRECTORY}, v2's under ""
 *   crun        ID/status: pid, process-start-time, cgroup-path
 *   systemd     machines/NAME, lines of KEY=VALUE: LEADER, CLASS
 *   LXC         NAME/config exists
 * Stores of names come before those of processes, as the first record's runtime stays.
 */
#include "proc/container_stores.h"

#include <errno.h>
#include <glob.h>
#include <json-c/json.h>
#include <limits.h>
#include <string.h>

#include "proc/container_path.h"
#include "util/size.h"
#include "util/text_file.h"

/* A list of 10000 containers has some 5 MB. */
#define STATE_MAX_BYTES (64u << 20)
#define STORAGE		"containers/storage"
#define TASKS		"io.containerd.runtime.v2.task"

static const struct {
	const char *pattern;
	enum container_file file;
} stores[] = {
	{"/var/lib/docker/containers/*/config.v2.json", CONTAINER_FILE_DOCKER_CONFIG},
	{"/var/snap/docker/common/var-lib-docker/containers/*/config.v2.json",
	 CONTAINER_FILE_DOCKER_CONFIG},
	{"/root/.local/share/docker/containers/*/config.v2.json", CONTAINER_FILE_DOCKER_CONFIG},
	{"/home/*/.local/share/docker/containers/*/config.v2.json", CONTAINER_FILE_DOCKER_CONFIG},
	{"/var/lib/" STORAGE "/*-containers/containers.json", CONTAINER_FILE_STORAGE_LIST},
	{"/var/lib/" STORAGE "/*-containers/volatile-containers.json", CONTAINER_FILE_STORAGE_LIST},
	{"/run/" STORAGE "/*-containers/volatile-containers.json", CONTAINER_FILE_STORAGE_LIST},
	{"/home/*/.local/share/" STORAGE "/*-containers/containers.json",
	 CONTAINER_FILE_STORAGE_LIST},
	{"/run/user/*/containers/*-containers/volatile-containers.json",
	 CONTAINER_FILE_STORAGE_LIST},
	{"/var/lib/" STORAGE "/*-containers/*/userdata/config.json", CONTAINER_FILE_STORAGE_SPEC},
	{"/var/lib/" STORAGE "/*-containers/*/userdata/state.json", CONTAINER_FILE_CRIO_STATE},
	{"/run/" STORAGE "/*-containers/*/userdata/pidfile", CONTAINER_FILE_PIDFILE},
	{"/run/user/*/containers/*-containers/*/userdata/pidfile", CONTAINER_FILE_PIDFILE},
	{"/run/containerd/" TASKS "/*/*/config.json", CONTAINER_FILE_TASK_SPEC},
	{"/run/k3s/containerd/" TASKS "/*/*/config.json", CONTAINER_FILE_TASK_SPEC},
	{"/run/docker/containerd/daemon/" TASKS "/*/*/config.json", CONTAINER_FILE_TASK_SPEC},
	{"/run/containerd/" TASKS "/*/*/init.pid", CONTAINER_FILE_TASK_PID},
	{"/run/k3s/containerd/" TASKS "/*/*/init.pid", CONTAINER_FILE_TASK_PID},
	{"/run/docker/containerd/daemon/" TASKS "/*/*/init.pid", CONTAINER_FILE_TASK_PID},
	{"/var/lib/nerdctl/*/names/*/*", CONTAINER_FILE_NERDCTL_NAME},
	{"/run/runc/*/state.json", CONTAINER_FILE_RUNC_STATE},
	{"/run/user/*/runc/*/state.json", CONTAINER_FILE_RUNC_STATE},
	{"/run/docker/runtime-*/moby/*/state.json", CONTAINER_FILE_RUNC_STATE},
	{"/run/containerd/runc/*/*/state.json", CONTAINER_FILE_RUNC_STATE},
	{"/run/k3s/containerd/runc/*/*/state.json", CONTAINER_FILE_RUNC_STATE},
	{"/run/crun/*/status", CONTAINER_FILE_CRUN_STATUS},
	{"/run/user/*/crun/*/status", CONTAINER_FILE_CRUN_STATUS},
	{"/run/systemd/machines/*", CONTAINER_FILE_MACHINE},
	{"/var/lib/lxc/*/config", CONTAINER_FILE_LXC_CONFIG},
};

/* ------------------------------------------------------------------ JSON */

static void cleanup_json(struct json_object **object)
{
	json_object_put(*object);
}

static void cleanup_tokener(struct json_tokener **tokener)
{
	if (*tokener)
		json_tokener_free(*tokener);
}

#define _cleanup_json_ __attribute__((cleanup(cleanup_json)))

/* The tokener bounds the depth to 32. */
static int parse_json(const char *text, size_t bytes, enum json_type type, struct json_object **ret)
{
	struct json_tokener *tokener __attribute__((cleanup(cleanup_tokener))) = json_tokener_new();
	struct json_object *object;

	if (!tokener)
		return -ENOMEM;
	if (bytes >= INT_MAX)
		return -EINVAL;
	/* With the NUL, so that the end of the text is the end of the value. */
	object = json_tokener_parse_ex(tokener, text, bytes + 1);
	if (!object || !json_object_is_type(object, type)) {
		json_object_put(object);
		return -EINVAL;
	}
	*ret = object;
	return 0;
}

static struct json_object *member(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	if (json_object_is_type(object, json_type_object))
		json_object_object_get_ex(object, key, &value);
	return value;
}

/* A string, "" if there is none. */
static const char *text_of(struct json_object *object)
{
	return json_object_is_type(object, json_type_string) ? json_object_get_string(object) : "";
}

static const char *text_member(struct json_object *object, const char *key)
{
	return text_of(member(object, key));
}

static pid_t pid_of(struct json_object *object)
{
	int64_t pid =
		json_object_is_type(object, json_type_int) ? json_object_get_int64(object) : 0;

	return pid > 0 && pid <= INT_MAX ? pid : 0;
}

static int set_text(char **to, const char *text)
{
	if (!*text)
		return 0;
	free(*to);
	*to = strdup(text);
	return *to ? 0 : -ENOMEM;
}

/* ------------------------------------------------------------------ names in paths */

/* The n-th name of a path from its end, 0 being the file itself. */
static char *path_name(const char *path, unsigned int n)
{
	size_t end = strlen(path), start;

	for (;; n--) {
		start = end;
		while (start && path[start - 1] != '/')
			start--;
		if (!n || !start)
			break;
		end = start - 1;
	}
	return n ? strdup("") : strndup(path + start, end - start);
}

static int set_id(struct container_record *record, const char *path, unsigned int n)
{
	record->id = path_name(path, n);
	if (!record->id)
		return -ENOMEM;
	return *record->id ? 0 : -EINVAL;
}

static int parse_pid(const char *text, pid_t *ret)
{
	char digits[16];
	uint64_t pid;

	if (strcspn(text, "\n") >= sizeof(digits))
		return -EINVAL;
	snprintf(digits, sizeof(digits), "%.*s", (int)strcspn(text, "\n"), text);
	if (number_parse(digits, INT_MAX, &pid))
		return -EINVAL;
	*ret = pid;
	return 0;
}

/* ------------------------------------------------------------------ files */

static int parse_docker(const char *path, const char *text, size_t bytes,
			struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "docker"};
	struct json_object *config _cleanup_json_ = NULL;
	struct json_object *state;
	const char *name;
	int err = parse_json(text, bytes, json_type_object, &config);

	if (!err)
		err = set_text(&record.id, text_member(config, "ID"));
	if (err || !record.id)
		return err ? err : -EINVAL;
	name = text_member(config, "Name");
	err = set_text(&record.name, *name == '/' ? name + 1 : name);
	if (err)
		return err;
	state = member(config, "State");
	if (json_object_get_boolean(member(state, "Running")))
		record.init_pid = pid_of(member(state, "Pid"));
	return container_records_add(records, &record);
}

static int parse_storage_entry(struct json_object *entry, struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "podman"};
	struct json_object *metadata _cleanup_json_ = NULL;
	struct json_object *names = member(entry, "names");
	const char *inner = text_member(entry, "metadata");
	int err = set_text(&record.id, text_member(entry, "id"));

	if (err || !record.id)
		return err;
	if (json_object_is_type(names, json_type_array))
		err = set_text(&record.name, text_of(json_object_array_get_idx(names, 0)));
	if (err)
		return err;
	err = parse_json(inner, strlen(inner), json_type_object, &metadata);
	if (err == -ENOMEM)
		return err;
	if (*text_member(metadata, "pod-name"))
		record.runtime = "cri-o";
	return container_records_add(records, &record);
}

static int parse_storage(const char *path, const char *text, size_t bytes,
			 struct container_records *records)
{
	struct json_object *list _cleanup_json_ = NULL;
	int err = parse_json(text, bytes, json_type_array, &list);

	for (size_t i = 0; !err && i < json_object_array_length(list); i++)
		err = parse_storage_entry(json_object_array_get_idx(list, i), records);
	return err;
}

/* The first annotation of these that there is, or "". */
static const char *annotation(struct json_object *spec, const char *first, const char *second)
{
	struct json_object *annotations = member(spec, "annotations");
	const char *value = text_member(annotations, first);

	return *value ? value : text_member(annotations, second);
}

/* Names as containerd's CRI plugin, CRI-O and nerdctl write them into an OCI spec. */
static int parse_spec(const char *text, size_t bytes, struct container_record *record)
{
	struct json_object *spec _cleanup_json_ = NULL;
	const char *namespace, *pod;
	int err = parse_json(text, bytes, json_type_object, &spec);

	if (!err)
		err = set_text(&record->name, annotation(spec, "io.kubernetes.cri.container-name",
							 "io.kubernetes.container.name"));
	if (!err && !record->name)
		err = set_text(&record->name, annotation(spec, "nerdctl/name", ""));
	if (err)
		return err;
	namespace = annotation(spec, "io.kubernetes.cri.sandbox-namespace",
			       "io.kubernetes.pod.namespace");
	pod = annotation(spec, "io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name");
	if (*pod && asprintf(&record->pod, "%s/%s", namespace, pod) < 0) {
		record->pod = NULL;
		return -ENOMEM;
	}
	record->sandbox = !strcmp(annotation(spec, "io.kubernetes.cri.container-type",
					     "io.kubernetes.cri-o.ContainerType"),
				  "sandbox");
	if (!strcmp(annotation(spec, "io.container.manager", ""), "cri-o") ||
	    *annotation(spec, "io.kubernetes.cri-o.ContainerType", ""))
		record->runtime = "cri-o";
	return 0;
}

/* CRI-O's own name for a container, k8s_NAME_POD_NAMESPACE_UID_0, gives way to Kubernetes'. */
static int parse_storage_spec(const char *path, const char *text, size_t bytes,
			      struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "podman"};
	int err = set_id(&record, path, 2);

	if (!err)
		err = parse_spec(text, bytes, &record);
	for (size_t i = 0; !err && record.name && record.pod && i < records->count; i++) {
		struct container_record *known = &records->entries[i];

		if (strcmp(known->id, record.id))
			continue;
		free(known->name);
		known->name = take_ptr(record.name);
		known->runtime = record.runtime;
	}
	return err ? err : container_records_add(records, &record);
}

static int parse_crio_state(const char *path, const char *text, size_t bytes,
			    struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "cri-o"};
	struct json_object *state _cleanup_json_ = NULL;
	int err = set_id(&record, path, 2);

	if (!err)
		err = parse_json(text, bytes, json_type_object, &state);
	if (err)
		return err;
	record.init_pid = pid_of(member(state, "pid"));
	return container_records_add(records, &record);
}

static int parse_pidfile(const char *path, const char *text, size_t bytes,
			 struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "podman"};
	int err = set_id(&record, path, 2);

	if (!err)
		err = parse_pid(text, &record.init_pid);
	return err ? err : container_records_add(records, &record);
}

static int task_init(struct container_record *record, const char *path)
{
	char *namespace _cleanup_free_ = path_name(path, 2);
	int err = set_id(record, path, 1);

	record->home = strndup(path, strrchr(path, '/') - path);
	if (!namespace || !record->home)
		return -ENOMEM;
	/* "moby" is docker's, of a data root that we do not know. */
	record->runtime = strcmp(namespace, "moby") ? "containerd" : "docker";
	return err;
}

static int parse_task_spec(const char *path, const char *text, size_t bytes,
			   struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {};
	int err = task_init(&record, path);

	if (!err)
		err = parse_spec(text, bytes, &record);
	return err ? err : container_records_add(records, &record);
}

static int parse_task_pid(const char *path, const char *text, size_t bytes,
			  struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {};
	int err = task_init(&record, path);

	if (!err)
		err = parse_pid(text, &record.init_pid);
	return err ? err : container_records_add(records, &record);
}

static int parse_nerdctl(const char *path, const char *text, size_t bytes,
			 struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "containerd"};
	size_t length = strcspn(text, " \n");

	if (!container_is_hex_id(text, length))
		return -EINVAL;
	record.id = strndup(text, length);
	record.name = path_name(path, 0);
	if (!record.id || !record.name)
		return -ENOMEM;
	return container_records_add(records, &record);
}

static int parse_runc(const char *path, const char *text, size_t bytes,
		      struct container_records *records)
{
	/* Any v1 directory would do, but the best comes first. */
	static const char *const keys[] = {"", "memory", "pids", "cpu", "name=systemd"};
	struct container_record record _cleanup_container_record_ = {.runtime = "runc"};
	struct json_object *state _cleanup_json_ = NULL;
	struct json_object *paths;
	int err = parse_json(text, bytes, json_type_object, &state);

	if (!err)
		err = set_text(&record.id, text_member(state, "id"));
	if (err || !record.id)
		return err ? err : -EINVAL;
	record.init_pid = pid_of(member(state, "init_process_pid"));
	record.start_ticks = json_object_get_uint64(member(state, "init_process_start"));
	paths = member(state, "cgroup_paths");
	for (size_t i = 0; !err && !record.cgroup && i < ARRAY_SIZE(keys); i++)
		err = set_text(&record.cgroup, text_member(paths, keys[i]));
	return err ? err : container_records_add(records, &record);
}

static int parse_crun(const char *path, const char *text, size_t bytes,
		      struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "crun"};
	struct json_object *status _cleanup_json_ = NULL;
	int err = set_id(&record, path, 1);

	if (!err)
		err = parse_json(text, bytes, json_type_object, &status);
	if (!err)
		err = set_text(&record.cgroup, text_member(status, "cgroup-path"));
	if (err)
		return err;
	record.init_pid = pid_of(member(status, "pid"));
	record.start_ticks = json_object_get_uint64(member(status, "process-start-time"));
	return container_records_add(records, &record);
}

/* Virtual machines register, too: their leader is an emulator. */
static int parse_machine(const char *path, const char *text, size_t bytes,
			 struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "machine"};
	char *copy _cleanup_free_ = strdup(text), *rest = copy, *line;
	int err = set_id(&record, path, 0);

	if (!copy)
		return -ENOMEM;
	/* "unit:NAME" are links from units to machines. */
	if (err || strchr(record.id, ':'))
		return -EINVAL;
	while ((line = strsep(&rest, "\n"))) {
		if (!strcmp(line, "CLASS=vm"))
			return 0;
		if (!strncmp(line, "LEADER=", 7))
			err = parse_pid(line + 7, &record.init_pid);
	}
	if (err || !record.init_pid)
		return -EINVAL;
	return container_records_add(records, &record);
}

static int parse_lxc(const char *path, const char *text, size_t bytes,
		     struct container_records *records)
{
	struct container_record record _cleanup_container_record_ = {.runtime = "lxc"};
	int err = set_id(&record, path, 1);

	return err ? err : container_records_add(records, &record);
}

int container_records_parse(enum container_file file, const char *path, const char *text,
			    size_t bytes, struct container_records *records)
{
	static int (*const parsers[])(const char *, const char *, size_t,
				      struct container_records *) = {
		[CONTAINER_FILE_DOCKER_CONFIG] = parse_docker,
		[CONTAINER_FILE_STORAGE_LIST] = parse_storage,
		[CONTAINER_FILE_STORAGE_SPEC] = parse_storage_spec,
		[CONTAINER_FILE_CRIO_STATE] = parse_crio_state,
		[CONTAINER_FILE_PIDFILE] = parse_pidfile,
		[CONTAINER_FILE_TASK_SPEC] = parse_task_spec,
		[CONTAINER_FILE_TASK_PID] = parse_task_pid,
		[CONTAINER_FILE_NERDCTL_NAME] = parse_nerdctl,
		[CONTAINER_FILE_RUNC_STATE] = parse_runc,
		[CONTAINER_FILE_CRUN_STATUS] = parse_crun,
		[CONTAINER_FILE_MACHINE] = parse_machine,
		[CONTAINER_FILE_LXC_CONFIG] = parse_lxc,
	};

	/* A NUL inside would hide the rest from what reads a string. */
	if (strlen(text) != bytes)
		return -EINVAL;
	return parsers[file](path, text, bytes, records);
}

static int load_pattern(const char *root_folder, const char *pattern, enum container_file file,
			struct container_records *records)
{
	char *full _cleanup_free_ = NULL;
	glob_t found = {};
	int err;

	if (asprintf(&full, "%s%s", root_folder, pattern) < 0) {
		full = NULL;
		return -ENOMEM;
	}
	err = glob(full, 0, NULL, &found) == GLOB_NOSPACE ? -ENOMEM : 0;
	for (size_t i = 0; !err && i < found.gl_pathc; i++) {
		char *text _cleanup_free_ = NULL;
		size_t bytes;

		err = text_file_read(found.gl_pathv[i], STATE_MAX_BYTES, &text, &bytes);
		if (!err)
			err = container_records_parse(file, found.gl_pathv[i], text, bytes,
						      records);
		if (err != -ENOMEM)
			err = 0;
	}
	globfree(&found);
	return err;
}

int container_records_load(const char *root_folder, struct container_records *records)
{
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(stores); i++)
		err = load_pattern(root_folder, stores[i].pattern, stores[i].file, records);
	return err;
}
