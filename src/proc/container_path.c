/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * docker-ID.scope (docker, systemd driver), /docker/ID (cgroupfs driver), cri-containerd-ID.scope,
 * crio-ID.scope and crio-ID, libpod-ID.scope and libpod-ID, libpod-payload-ID (podman run
 * --cgroups=split), nerdctl-ID.scope, /kubepods.../ID, /k8s.io/ID and /default/ID (containerd's
 * namespaces), SLICE:cri-containerd:ID (a slice's name given to the cgroupfs driver),
 * runc-ID.scope, crun-ID.scope, lxc.payload.NAME and /lxc/NAME, machine-NAME.scope,
 * systemd-nspawn@NAME.service. The conmon folders beside them hold only the supervisor.
 */
#include "proc/container_path.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

bool container_is_hex_id(const char *id, size_t length)
{
	if (length != CONTAINER_HEX_ID_LENGTH)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!strchr("0123456789abcdef", id[i]) || !id[i])
			return false;
	return true;
}

/* A name of a unit without systemd's \x2d. False if it does not fit. */
static bool unescape_unit(const char *text, size_t length, char *to, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (c == '\\' && i + 3 < length && text[i + 1] == 'x' &&
		    isxdigit((unsigned char)text[i + 2]) && isxdigit((unsigned char)text[i + 3])) {
			char digits[3] = {text[i + 2], text[i + 3]};

			c = strtol(digits, NULL, 16);
			i += 3;
		}
		if (used + 1 >= size || !c)
			return false;
		to[used++] = c;
	}
	to[used] = 0;
	return used;
}

struct word {
	const char *text;
	size_t length;
};

static bool word_is(struct word word, const char *text)
{
	return word.length == strlen(text) && !strncmp(word.text, text, word.length);
}

static bool take_prefix(struct word *word, const char *prefix)
{
	size_t length = strlen(prefix);

	if (word->length <= length || strncmp(word->text, prefix, length))
		return false;
	word->text += length;
	word->length -= length;
	return true;
}

static bool take_suffix(struct word *word, const char *suffix)
{
	size_t length = strlen(suffix);

	if (word->length <= length || strncmp(word->text + word->length - length, suffix, length))
		return false;
	word->length -= length;
	return true;
}

static const char *runtime_of_prefix(struct word prefix)
{
	static const struct {
		const char *prefix, *runtime;
	} known[] = {
		{"docker", "docker"},
		{"cri-containerd", "containerd"},
		{"crio", "cri-o"},
		{"libpod", "podman"},
		{"libpod-payload", "podman"},
		{"nerdctl", "containerd"},
		{"containerd", "containerd"},
		{"runc", "runc"},
		{"crun", "crun"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (word_is(prefix, known[i].prefix))
			return known[i].runtime;
	return NULL;
}

/* The runtime of a folder that is only an id, by those above it. */
static const char *runtime_of_parents(const char *path, struct word parent)
{
	const char *pos;

	if (word_is(parent, "docker"))
		return "docker";
	if (word_is(parent, "libpod_parent"))
		return "podman";
	if (word_is(parent, "k8s.io") || word_is(parent, "default"))
		return "containerd";
	pos = strstr(path, "/kubepods");
	return pos && pos < parent.text ? "kubernetes" : "oci";
}

static bool is_conmon(struct word word)
{
	return take_prefix(&word, "crio-conmon-") || take_prefix(&word, "libpod-conmon-");
}

/* A folder with a hexadecimal id: alone, or behind the last '-' or ':'. */
static const char *parse_hex(const char *path, struct word parent, struct word word,
			     struct word *ret_id)
{
	struct word prefix = word, id = word;
	const char *runtime;

	take_suffix(&id, ".scope");
	if (id.length < CONTAINER_HEX_ID_LENGTH)
		return NULL;
	id.text += id.length - CONTAINER_HEX_ID_LENGTH;
	id.length = CONTAINER_HEX_ID_LENGTH;
	if (!container_is_hex_id(id.text, id.length))
		return NULL;
	*ret_id = id;
	if (id.text == word.text)
		return runtime_of_parents(path, parent);
	if (id.text[-1] != '-' && id.text[-1] != ':')
		return NULL;
	prefix.length = id.text - 1 - word.text;
	/* SLICE:PREFIX:ID */
	for (size_t i = prefix.length; i > 0; i--) {
		if (prefix.text[i - 1] == ':') {
			prefix.text += i;
			prefix.length -= i;
			break;
		}
	}
	runtime = runtime_of_prefix(prefix);
	return runtime ? runtime : "oci";
}

static const char *parse_word(const char *path, struct word parent, struct word word,
			      struct word *ret_id)
{
	const char *runtime;

	if (is_conmon(word))
		return NULL;
	runtime = parse_hex(path, parent, word, ret_id);
	if (runtime)
		return runtime;
	*ret_id = word;
	if (take_prefix(ret_id, "lxc.payload."))
		return "lxc";
	if (word_is(parent, "lxc") || word_is(parent, "lxc.payload"))
		return "lxc";
	if (take_prefix(ret_id, "systemd-nspawn@") && take_suffix(ret_id, ".service"))
		return "machine";
	*ret_id = word;
	if (!take_suffix(ret_id, ".scope"))
		return NULL;
	if (take_prefix(ret_id, "machine-"))
		return "machine";
	if (take_prefix(ret_id, "runc-"))
		return "runc";
	return take_prefix(ret_id, "crun-") ? "crun" : NULL;
}

/* The word that ends at length, which a '/' precedes. */
static struct word last_word(const char *path, size_t length)
{
	size_t start = length;

	while (start && path[start - 1] != '/')
		start--;
	return (struct word){path + start, length - start};
}

bool container_path_parse(const char *path, struct container_path *ret)
{
	for (size_t length = strlen(path); length;) {
		struct word word = last_word(path, length), parent = {path, 0}, id;
		size_t before = word.text - path;
		const char *runtime;

		if (before > 1)
			parent = last_word(path, before - 1);
		runtime = word.length ? parse_word(path, parent, word, &id) : NULL;
		if (runtime && unescape_unit(id.text, id.length, ret->id, sizeof(ret->id))) {
			ret->runtime = runtime;
			ret->length = length;
			return true;
		}
		length = before ? before - 1 : 0;
	}
	return false;
}

static bool names_id(struct word word, const char *id)
{
	char name[512];
	struct word plain;
	size_t length = strlen(id);

	if (is_conmon(word) || !unescape_unit(word.text, word.length, name, sizeof(name)))
		return false;
	plain = (struct word){name, strlen(name)};
	if (!word_is(plain, id))
		take_suffix(&plain, ".scope");
	take_suffix(&plain, ".service");
	if (plain.length < length || strncmp(plain.text + plain.length - length, id, length))
		return false;
	return plain.length == length || strchr("-:.@", plain.text[plain.length - length - 1]);
}

size_t container_path_length(const char *path, const char *id)
{
	static const char payload[] = "/payload";

	for (size_t length = strlen(path); length && *id;) {
		struct word word = last_word(path, length);
		size_t before = word.text - path;

		if (word.length && names_id(word, id)) {
			const char *next = path + length;
			size_t n = strlen(payload);

			if (!strncmp(next, payload, n) && (!next[n] || next[n] == '/'))
				length += n;
			return length;
		}
		length = before ? before - 1 : 0;
	}
	return 0;
}
