/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Containers by the names that runtimes give to cgroups. */
#ifndef HEAPTAP_PROC_CONTAINER_PATH_H
#define HEAPTAP_PROC_CONTAINER_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Of docker, podman, CRI-O and containerd's clients: 64 hexadecimal digits. */
#define CONTAINER_HEX_ID_LENGTH 64

struct container_path {
	const char *runtime; /* "docker", "kubernetes" if the path does not tell more, ... */
	char id[256];	     /* full; a name for lxc, machines and runc */
	size_t length;	     /* of the part of the path that is the container's cgroup */
};

/*
 * The innermost container that a path of /proc/PID/cgroup names. False if it names none. Plain runc
 * and crun name cgroups as the user says, so theirs are not known by the path.
 */
bool container_path_parse(const char *path, struct container_path *ret);

/*
 * The length of the part of a path that ends with the innermost folder named after a container's
 * id: the id itself, or PREFIX-ID, PREFIX:ID, lxc.payload.ID, with or without ".scope". 0 if there
 * is none. What lies below was made inside the container: init.scope, docker's own containers.
 * A "payload" right below, which systemd-nspawn makes, is part of it.
 */
size_t container_path_length(const char *path, const char *id);

bool container_is_hex_id(const char *id, size_t length);

#endif
